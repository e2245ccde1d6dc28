"""Sentences that libraries print in healthy runs describe nothing, however they were wrapped."""

import pytest
from ddpwizard.app.logs.free_text import match_free_text
from ddpwizard.app.logs.notices import without_notices
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
THREADS = next(notice for notice in KNOWLEDGE.notices if "OMP_NUM_THREADS" in notice)
BORDER = "*" * 41


def filled(notice: str) -> str:
    """Return a notice as it is printed: the last value is a number, the others are paths."""
    return f"{notice.removesuffix('*').replace('*', '/opt/x')}{'8' if notice.endswith('*') else ''}"


@pytest.mark.parametrize("notice", KNOWLEDGE.notices)
def test_a_notice_describes_nothing(notice: str):
    assert match_free_text(filled(notice), "x", KNOWLEDGE) == []


@pytest.mark.parametrize(
    "text",
    [
        f"WARNING:torch.distributed.run:\n{BORDER}\n{THREADS}\n{BORDER}",
        f"{THREADS[:58]}\n{THREADS[58:121]}\n{THREADS[121:]}",
        f"W1126 15:17:24.646000 30684 torch/distributed/run.py:874] {THREADS[:60]}\n{THREADS[60:]}",
        f"node0 | {THREADS}",
        f"WARNING:torch.distributed.run: {BORDER} {THREADS} {BORDER}",
        "[W reducer.cpp:1300] Warning: find_unused_parameters=True was specified in DDP constructor, but did not "
        "find any unused parameters in the forward pass.",
    ],
    ids=["bordered", "wrapped", "wrapped after a prefix", "prefix of a container", "in one line", "logger of C++"],
)
def test_a_changed_notice_describes_nothing(text: str):
    assert match_free_text(text, "x", KNOWLEDGE) == []


def test_what_a_person_writes_next_to_a_notice_stays_in_its_place():
    text = f"It prints {THREADS} and then rank 1 hangs.\nBoth GPUs are busy."
    rest = without_notices(text, KNOWLEDGE.notices)
    assert rest.split() == ["It", "prints", "and", "then", "rank", "1", "hangs.", "Both", "GPUs", "are", "busy."]
    assert rest.index("rank 1") == text.index("rank 1")


def test_a_text_without_a_notice_is_unchanged():
    text = "Using two nodes, rank 1 never joins: GPU available, used by nobody.\n\n  Num_workers is 4."
    assert without_notices(text, KNOWLEDGE.notices) == text
