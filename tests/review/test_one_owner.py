"""One finding for each mistake, where several rules see it."""

from pathlib import Path

import pytest
from ddpwizard.app.review import one_owner
from ddpwizard.app.review.file_review import review_file
from ddpwizard.app.review.review import review_text
from helpers.measured_programs import PROGRAMS
from helpers.review_snippets import KNOWLEDGE, script

START = """
import contextlib
import threading
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
tensor = torch.randn(4)
"""
# The rule that reports the only finding of a program, and the line that is wrong.
OWNERS = {
    "a lambda": ("DW470", "dist.all_gather_object([None] * world, lambda x: x)"),
    "a generator": ("DW470", "dist.all_gather_object([None] * world, (x for x in [1]))"),
    "a generator instead of a list": ("DW460", "dist.broadcast_object_list((x for x in [1]), src=0)"),
    "a list without places": ("DW417", "dist.all_gather_object([], rank)"),
    "a result of one part": (
        "DW425",
        "whole = torch.empty_like(tensor)\ndist.all_gather_into_tensor(whole, tensor)\nprint(whole)",
    ),
    "a message to no rank": ("DW461", "dist.send(tensor, dst=rank + 1) if rank else dist.recv(tensor, src=1)"),
    "a message of its own": ("DW461", "dist.recv(tensor, src=rank)"),
    "a float that is a result": (
        "DW460",
        "total = 0.0\nfor x in [tensor]:\n    total += x.sum().item()\ndist.all_reduce(total / 4)",
    ),
    "a number of a GPU with gloo": ("DW464", "DDP(nn.Linear(2, 2), device_ids=[rank])"),
    "a sampler for one rank": (
        "DW232",
        "data = torch.ones(8, 2)\nfor x in DataLoader(data, sampler=DistributedSampler(data, 1, rank)):\n    print(x)",
    ),
    "a sum of all ranks by the count of one": (
        "DW498",
        "loader = DataLoader(torch.ones(8, 2), sampler=DistributedSampler(torch.ones(8, 2)))\n"
        "def evaluate(model):\n    total, right = 0, torch.zeros(1)\n    for batch in loader:\n"
        "        right += (model(batch) > 0).sum()\n        total += batch.size(0)\n    dist.all_reduce(right)\n"
        "    if rank == 0:\n        print(f'{right.item() / total} of {total}')\nevaluate(nn.Linear(2, 1))",
    ),
    "a file that one rank writes": (
        "DW406",
        "if not os.path.exists('words.bin'):\n    if rank == 0:\n        torch.save([1], 'words.bin')\n"
        "    dist.barrier()",
    ),
    "a checkpoint of a trainer": (
        "DW260",
        "from lightning.pytorch import Callback\nclass Keep(Callback):\n"
        "    def on_train_end(self, trainer, pl_module):\n        if trainer.is_global_zero:\n"
        "            trainer.save_checkpoint('last.ckpt')",
    ),
    "groups in an order of each rank": (
        "DW450",
        "pairs = [(rank, (rank + 1) % world), ((rank - 1) % world, rank)]\n"
        "groups = {pair: dist.new_group(pair) for pair in [(each, (each + 1) % world) for each in range(world)]}\n"
        "for pair in sorted(pairs, key=lambda pair: (pair[1] + rank) % world):\n"
        "    dist.all_reduce(tensor, group=groups[pair])",
    ),
}


def rules(text: str) -> list[str]:
    """Return the rules of the errors and warnings in a script."""
    return [each.rule for each in review_text(text, "train.py", KNOWLEDGE) if each.severity != "info"]


@pytest.mark.parametrize("name", OWNERS)
def test_a_mistake_has_one_finding(name: str) -> None:
    owner, code = OWNERS[name]
    assert rules(script(START + code + "\n")) == [owner]


@pytest.mark.parametrize(("program", "owner"), [("any_rank_guard", "DW456"), ("vocab_first", "DW471")])
def test_a_measured_mistake_has_one_finding(program: str, owner: str) -> None:
    text = (PROGRAMS / "broken" / f"{program}.py").read_text()
    assert rules(text) == [owner]


def test_the_attribute_of_a_sent_object_is_reported_once() -> None:
    code = (
        "class Settings:\n    def __init__(self):\n        self.HELD\ndist.broadcast_object_list([Settings()], src=0)\n"
    )
    assert rules(script(START + code.replace("HELD", "scale = lambda x: 2 * x"))) == ["DW470"]
    assert rules(script(START + code.replace("HELD", "scale = 2"))) == []


def test_an_object_that_a_helper_of_another_file_sends(tmp_path: Path) -> None:
    helper = "import torch.distributed as dist\ndef send(value):\n    dist.broadcast_object_list([value], src=0)\n"
    (tmp_path / "exchange.py").write_text(helper)
    train = tmp_path / "train.py"
    train.write_text(script(START + "from exchange import send\nsend(lambda x: x)\n"))
    (finding,) = review_file(train, KNOWLEDGE)
    assert (finding.rule, finding.related[0].line) == ("DW470", 3)
    train.write_text(script(START + "from exchange import send\nsend(rank)\n"))
    assert review_file(train, KNOWLEDGE) == []


def test_ranks_in_turns_have_the_cause_of_ranks_that_part() -> None:
    (turns,) = review_text((PROGRAMS / "broken" / "vocab_first.py").read_text(), "train.py", KNOWLEDGE)
    assert turns.cause == "rank-conditional-collective"
    assert "in the turn of a rank (line 67)" in turns.message


def test_every_owner_has_a_program_here() -> None:
    shown = {owner for owner, _ in OWNERS.values()} | {"DW456", "DW471"}
    assert one_owner.CONSEQUENCES.keys() <= shown
