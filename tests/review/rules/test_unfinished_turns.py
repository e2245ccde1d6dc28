"""Ranks take turns between two barriers; behind a barrier that the others never answer nothing is excused."""

import pytest
from helpers.review_snippets import lines

START = """
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
FUNCTIONS = """
def first():
    if rank != 0:
        dist.barrier()
def next_ones():
    if rank == 0:
        dist.barrier()
"""
SAVE = "torch.save(torch.ones(3), 'last.pt')"
TURNS = [
    f"if rank != 0:\n    dist.barrier()\n{SAVE}\nif rank == 0:\n    dist.barrier()",
    f"first()\n{SAVE}\nnext_ones()",
    f"def make():\n    first()\n    {SAVE}\n    next_ones()\nmake()",
]


@pytest.mark.parametrize("code", TURNS)
def test_what_ranks_do_in_turns_is_no_race(code: str) -> None:
    assert lines(START + FUNCTIONS + code + "\n", "DW501") == []
    unanswered = code.replace("if rank == 0:\n    dist.barrier()", "").replace("next_ones()", "")
    assert lines(START + FUNCTIONS + unanswered + "\n", "DW501") == [SAVE]
    assert lines(f"{START}{FUNCTIONS}{code}\n{SAVE}\n", "DW501") == [SAVE]


def test_a_collective_of_one_rank_hides_nothing_behind_it() -> None:
    code = f"if rank == 0:\n    dist.barrier()\nfor epoch in range(2):\n    {SAVE}\n"
    assert lines(START + code, "DW401") == ["dist.barrier()"]
    assert lines(START + code, "DW501") == [SAVE]
