"""Collectives of different places at which ranks meet, with look-alikes that fit."""

import pytest
from helpers.review_snippets import lines

START = """
import time
from datetime import timedelta
dist.init_process_group("gloo")
rank = dist.get_rank()
mean, std, count = torch.zeros(3), torch.ones(3), torch.zeros(1)
"""
SIDES = START + "if rank == 0:\n    FIRST\nelse:\n    SECOND\n"
NORMS = """
class Norm:
    def __init__(self):
        self.mean, self.std = torch.zeros(3), torch.ones(3)

    def share(self):
        dist.broadcast(self.mean, 0)
        dist.broadcast(self.std, 0)

    def receive(self):
        for t in (ORDER):
            dist.broadcast(t, 0)

norm = Norm()
if rank == 0:
    norm.share()
else:
    norm.receive()
"""
WAIT = """
import time
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(LIMIT))
if dist.get_rank() == 0:
    for part in range(PARTS):
        time.sleep(2)
dist.barrier()
"""


def sides(first: str, second: str) -> str:
    return SIDES.replace("FIRST", first.replace("\n", "\n    ")).replace("SECOND", second.replace("\n", "\n    "))


SHARE = "dist.broadcast(mean, src=0)\ndist.broadcast(std, src=0)"
BACK = "dist.broadcast(std, src=0)\ndist.broadcast(mean, src=0)"
ORDERS = {
    "two calls": sides(SHARE, BACK),
    "behind a training loop": sides(SHARE, BACK).replace("if rank", "for i in range(50):\n    dist.barrier()\nif rank"),
    "in a loop over tensors": sides(
        "for t in (mean, std, count):\n    dist.broadcast(t, 0)",
        "for t in [count, mean, std]:\n    dist.broadcast(t, 0)",
    ),
    "of a mapping": START
    + """
state = {"mean": mean, "std": std}
if rank == 0:
    dist.broadcast(state["mean"], 0)
    dist.broadcast(state["std"], 0)
else:
    dist.broadcast(state["std"], 0)
    dist.broadcast(state["mean"], 0)
""",
    "of an object": START + NORMS.replace("ORDER", "self.std, self.mean"),
    "sums": sides("dist.all_reduce(mean)\ndist.all_reduce(std)", "dist.all_reduce(std)\ndist.all_reduce(mean)"),
    "a list that the rank chooses": START
    + "order = [mean, std] if rank == 0 else [std, mean]\nfor t in order:\n    dist.all_reduce(t)\n",
}
IN_ORDER = {
    "one order": sides(SHARE, SHARE),
    "a loop in the order of the calls": sides(SHARE, "for t in (mean, std):\n    dist.broadcast(t, 0)"),
    "other names for what is received": sides(SHARE, "dist.broadcast(count, 0)\ndist.broadcast(count, 0)"),
    "an object": START + NORMS.replace("ORDER", "self.mean, self.std"),
    "a list of one order": START
    + "order = [mean, std] if rank == 0 else [mean, std]\nfor t in order:\n    dist.all_reduce(t)\n",
    "one after the other": sides("dist.broadcast(mean, 0)", "dist.broadcast(mean, 0)")
    + "if rank == 0:\n    dist.broadcast(std, 0)\nelse:\n    dist.broadcast(std, 0)\n",
}
KINDS = {
    "a smaller buffer": sides("dist.broadcast(torch.ones(4), 0)", "dist.broadcast(mean, 0)"),
    "whole numbers": sides("dist.broadcast(torch.arange(3), 0)", "dist.broadcast(mean, 0)"),
}
FITTING = {
    "one size": sides("dist.broadcast(torch.ones(3), 0)", "dist.broadcast(mean, 0)"),
    "one type": sides("dist.broadcast(torch.arange(3).float(), 0)", "dist.broadcast(mean, 0)"),
    "another shape of one size": sides("dist.broadcast(torch.ones(1, 3), 0)", "dist.broadcast(mean, 0)"),
}
ROOTS = sides("dist.broadcast(mean, src=0)", "dist.broadcast(mean, src=ROOT)")


@pytest.mark.parametrize("code", ORDERS.values(), ids=ORDERS)
def test_orders(code: str) -> None:
    assert len(lines(code, "DW443")) == 1


@pytest.mark.parametrize("code", IN_ORDER.values(), ids=IN_ORDER)
def test_calls_in_order(code: str) -> None:
    assert lines(code, "DW443") == []


@pytest.mark.parametrize("code", KINDS.values(), ids=KINDS)
def test_kinds(code: str) -> None:
    assert lines(code, "DW441") == ["dist.broadcast(mean, 0)"]


@pytest.mark.parametrize("code", FITTING.values(), ids=FITTING)
def test_fitting_kinds(code: str) -> None:
    assert lines(code, "DW441") == []


def test_roots() -> None:
    assert lines(ROOTS.replace("ROOT", "1"), "DW416") == ["dist.broadcast(mean, src=1)"]
    assert lines(ROOTS.replace("ROOT", "0"), "DW416") == []


@pytest.mark.parametrize(("limit", "parts"), [("seconds=5", 3), ("0, 10", 6), ("minutes=1, seconds=1", 40)])
def test_work_longer_than_the_time_out(limit: str, parts: int) -> None:
    assert lines(WAIT.replace("LIMIT", limit).replace("PARTS", str(parts)), "DW124") == ["time.sleep(2)"]


@pytest.mark.parametrize(("limit", "parts"), [("minutes=5", 3), ("seconds=30", 3), ("hours=limit", 40)])
def test_work_within_the_time_out(limit: str, parts: int) -> None:
    assert lines(WAIT.replace("LIMIT", limit).replace("PARTS", str(parts)), "DW124") == []


def test_pauses_of_all_ranks() -> None:
    code = WAIT.replace("LIMIT", "seconds=5").replace("PARTS", "9").replace("if dist.get_rank() == 0", "if True")
    assert lines(code, "DW124") == []
