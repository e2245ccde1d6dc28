"""DW406: a value that is reduced under an option, and a collective that it decides under the same option."""

import pytest
from helpers.review_snippets import lines

PROGRAM = """
dist.init_process_group("gloo")

def evaluate(model, args, loader):
    total = 0.0
    for batch in loader:
        total += model(batch).detach().float()
    {reduce}
    return total / len(loader)

def train(model, args, loader):
    best = float("inf")
    for epoch in range(3):
        loss = evaluate(model, args, loader)
        if args.save and loss < best:
            {wait}
            best = loss
"""
AGREED = {
    "by the same option": (
        "if args.sharded:\n        dist.all_reduce(total)",
        "if args.sharded:\n                dist.barrier()",
    ),
    "by one that needs it": (
        "if args.sharded:\n        dist.all_reduce(total)",
        "if args.sharded and args.wait:\n                dist.barrier()",
    ),
    "with several GPUs": (
        "if torch.cuda.device_count() > 1 and args.sharded:\n        dist.all_reduce(total)",
        "if args.sharded:\n                dist.barrier()",
    ),
    "without an option": ("dist.all_reduce(total)", "dist.barrier()"),
}
DIVERGED = {
    "reduced by an option": ("if args.sharded:\n        dist.all_reduce(total)", "dist.barrier()"),
    "by another option": (
        "if args.sharded:\n        dist.all_reduce(total)",
        "if args.wait:\n                dist.barrier()",
    ),
    "by the opposite": (
        "if not args.sharded:\n        dist.all_reduce(total)",
        "if args.sharded:\n                dist.barrier()",
    ),
    "not reduced": ("pass", "if args.sharded:\n                dist.barrier()"),
    "a number that the data of a rank decide": (
        "if args.sharded:\n        dist.all_reduce(total)",
        "if args.sharded:\n                dist.barrier()\n        if model(epoch).item() > 3:\n            best = 0.5",
    ),
    "the best is that of a rank": (
        "if args.sharded:\n        dist.all_reduce(total)",
        "if args.sharded:\n                dist.barrier()\n            best = model(loss).item()",
    ),
}


@pytest.mark.parametrize(("reduce", "wait"), AGREED.values(), ids=AGREED.keys())
def test_what_ranks_agree_on_where_they_meet_is_not_found(reduce: str, wait: str) -> None:
    assert lines(PROGRAM.format(reduce=reduce, wait=wait), "DW406") == []


@pytest.mark.parametrize(("reduce", "wait"), DIVERGED.values(), ids=DIVERGED.keys())
def test_what_one_rank_decides_is_found(reduce: str, wait: str) -> None:
    assert len(lines(PROGRAM.format(reduce=reduce, wait=wait), "DW406")) == 1
