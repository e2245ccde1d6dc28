"""Patches that move the end of the process group, activation checkpointing, and the samples of a stream."""

import pytest
from helpers.review_snippets import refused, repaired

ENDED = """\
def main():
    dist.init_process_group("nccl")
{}
main()
"""
CHECKPOINTED = """\
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing as checkpoint
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
dist.init_process_group("nccl")
model = nn.Linear(4, 4)
{}
"""
STREAM = """\
from torch.utils.data import IterableDataset
class Lines(IterableDataset):
    def __init__(self, lines, rank, world_size):
        self.lines, self.rank, self.world_size = lines, rank, world_size
    def __iter__(self):
        {}
"""
STREAM_OF_RANK = STREAM.replace(", world_size", "").replace(", self.world_size", "")
ROUNDS = "rounds = zip(*[iter(self.lines)] * self.world_size)\n        "


@pytest.mark.parametrize(
    ("rule", "text", "before", "after"),
    [
        (
            "DW409",
            ENDED,
            "    try:\n        dist.barrier()\n\n    finally:\n        dist.destroy_process_group()",
            "    dist.barrier()\n\n    dist.destroy_process_group()",
        ),
        (
            "DW409",
            ENDED,
            "    try:\n        dist.barrier()\n    except OSError:\n        raise\n    finally:\n"
            "        if dist.is_initialized():\n            dist.destroy_process_group()",
            "    try:\n        dist.barrier()\n    except OSError:\n        raise\n"
            "    if dist.is_initialized():\n        dist.destroy_process_group()",
        ),
        (
            "DW304",
            CHECKPOINTED,
            "model = FSDP(model)\nprint(model)\ncheckpoint(model)",
            "checkpoint(model)\nmodel = FSDP(model)\nprint(model)",
        ),
        ("DW244", STREAM, "yield from self.lines", f"{ROUNDS}yield from (one_each[self.rank] for one_each in rounds)"),
        (
            "DW244",
            STREAM,
            "for line in self.lines:\n            yield line.split()",
            f"{ROUNDS}for line in (one_each[self.rank] for one_each in rounds):\n            yield line.split()",
        ),
        (
            "DW244",
            STREAM_OF_RANK,
            "yield from self.lines",
            "own_rank = dist.get_rank() if dist.is_initialized() else 0\n"
            "        world_size = dist.get_world_size() if dist.is_initialized() else 1\n"
            "        rounds = zip(*[iter(self.lines)] * world_size)\n"
            "        yield from (one_each[own_rank] for one_each in rounds)",
        ),
    ],
)
def test_patch(rule: str, text: str, before: str, after: str) -> None:
    assert repaired(text.format(before), rule) == text.format(after)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (
            "DW409",
            ENDED.format(
                "    try:\n        if dist.get_world_size() > 4:\n            return\n        dist.barrier()\n"
                "    finally:\n        dist.destroy_process_group()"
            ),
        ),
        (
            "DW409",
            ENDED.format(
                "    try:\n        dist.barrier()\n    finally:\n        print(1)\n        dist.destroy_process_group()"
            ),
        ),
        ("DW304", CHECKPOINTED.format("sharded = FSDP(model)\ncheckpoint(sharded)")),
        ("DW244", STREAM.format("while self.lines:\n            yield self.lines.pop()")),
    ],
)
def test_no_patch(rule: str, code: str) -> None:
    assert refused(code, rule)
