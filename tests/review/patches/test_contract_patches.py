"""Patches of arguments that do not fit the ranks, and why some calls get none."""

import pytest
from helpers.review_snippets import refused, repaired

START = """
import threading
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.Linear(2, 2)
"""
# Rule, code, and the line that is new in it.
PATCHES = {
    "too few places": (
        "DW461",
        "dist.all_gather_object([None] * (world - 1), rank)",
        "[None] * (dist.get_world_size())",
    ),
    "too few tensors": (
        "DW461",
        "parts = [torch.empty(1) for _ in range(world + 1)]\ndist.all_gather(parts, torch.ones(1))",
        "parts = [torch.empty(1) for _ in range(dist.get_world_size())]",
    ),
    "no place for a part": (
        "DW461",
        "out = []\ndist.scatter_object_list(out, [1] * world if rank == 0 else None, src=0)",
        "out = [None]",
    ),
    "an option of one rank": (
        "DW462",
        "wrapped = DDP(model, find_unused_parameters=rank == 0)",
        "agreed = [rank == 0]\nif dist.is_initialized():\n    dist.broadcast_object_list(agreed, src=0)\n"
        "wrapped = DDP(model, find_unused_parameters=agreed[0])",
    ),
    "a store of every rank": (
        "DW462",
        "store = dist.TCPStore('localhost', 29501, world, True)",
        'store = dist.TCPStore(\'localhost\', 29501, world, int(os.environ.get("RANK", "0")) == 0)',
    ),
    "a second process group": (
        "DW463",
        'dist.init_process_group(\n    "gloo",\n)',
        'if not dist.is_initialized():\n    dist.init_process_group(\n        "gloo",\n    )',
    ),
    "a lambda with a name": (
        "DW470",
        "scale = lambda x, *rest: (\n    2 * x\n)\ndist.broadcast_object_list([{'scale': scale}], src=0)",
        "def scale(x, *rest):\n    return 2 * x",
    ),
    "a lambda without arguments": (
        "DW470",
        "zero = lambda: 0\ndist.broadcast_object_list([zero], src=0)",
        "def zero():\n    return 0",
    ),
    "a generator in a list": (
        "DW470",
        "dist.broadcast_object_list([(x for x in [1, 2])], src=0)",
        "dist.broadcast_object_list([[x for x in [1, 2]]], src=0)",
    ),
}
REFUSED = {
    "tensors of their own": (
        "DW461",
        "parts = [torch.full((1,), n) for n in range(world + 1)]\ndist.all_gather(parts, torch.ones(1))",
        "get_world_size",
    ),
    "a directory that the ranks name in a loop of their own": (
        "DW462",
        "for n in range(rank + 1):\n    dcp.save(model.state_dict(), checkpoint_id=f'c{rank}')",
        "broadcast_object_list",
    ),
    "a group whose making is a value": (
        "DW463",
        "group = dist.init_process_group('gloo')",
        "dist.is_initialized()",
    ),
    "a lambda that is not named": ("DW470", "dist.broadcast_object_list([lambda x: x], src=0)", "on each rank"),
    "a lambda of a function": (
        "DW470",
        "def main(by):\n    scale = lambda x: by * x\n    dist.broadcast_object_list([scale], src=0)\nmain(2)",
        "on each rank",
    ),
    "a lambda that is set again": (
        "DW470",
        "scale = lambda x: x\nscale = lambda x: 2 * x\ndist.broadcast_object_list([scale], src=0)",
        "on each rank",
    ),
    "a lock": ("DW470", "dist.broadcast_object_list([threading.Lock()], src=0)", "on each rank"),
}


@pytest.mark.parametrize("name", PATCHES)
def test_what_the_patch_writes(name: str) -> None:
    rule, code, after = PATCHES[name]
    assert after in repaired(START + code + "\n", rule)
    assert after not in START + code


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_left_to_a_person(name: str) -> None:
    rule, code, why = REFUSED[name]
    assert why in refused(START + code + "\n", rule)
