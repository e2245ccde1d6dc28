"""An exception of the script that a finding of the review leads to is the effect of that finding."""

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.evidence import DESYNC, SCRIPT_ERROR, Evidence, verdict_id
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
RACE = Evidence("review.DW505", "review", "used before rank 0 is done", where="/home/me/train.py:8")


def raised(exception: str, file: str = "train.py") -> Evidence:
    values = {"exception": exception, "file": file}
    what = f"Rank 1 failed first: {exception} at {file}:9 in main"
    return Evidence(SCRIPT_ERROR, "log", what, where="/home/me/run.log:3", rank=1, values=values)


def first(*items: Evidence) -> str:
    case = Case(KNOWLEDGE)
    case.add(items)
    return case.diagnosis().causes[0].id


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (raised("FileNotFoundError"), "checkpoint-race"),
        (raised("FileNotFoundError", "data.py"), "script-error"),
        (raised("ZeroDivisionError"), "script-error"),
    ],
)
def test_a_rule_explains_the_exceptions_that_it_names_in_the_file_that_it_was_found_in(error: Evidence, cause: str):
    assert first(error, RACE) == cause
    assert first(error) == "script-error"


def test_the_reason_names_the_exception_and_the_rule():
    case = Case(KNOWLEDGE)
    case.add([raised("EOFError"), RACE])
    reasons = [line.what for line in case.diagnosis().causes[0].because]
    assert any("EOFError" in what and "DW505" in what for what in reasons)


@pytest.mark.parametrize(
    ("verdict", "cause"),
    [("uneven-inputs", "uneven-inputs"), ("per-rank-decision", "per-rank-decision"), ("straggler-rank", DESYNC)],
)
def test_the_message_of_a_mismatch_follows_from_their_divergence(verdict: str, cause: str) -> None:
    signatures = KNOWLEDGE.causes[DESYNC].signatures
    at = next(index for index, each in enumerate(signatures) if "preamble" in each.pattern)
    message = Evidence(f"log:{DESYNC}/{at}", "log", "op.preamble.length <= op.nbytes. 1156 vs 4", where="/x/run.log:3")
    diverged = Evidence(verdict_id(verdict), "job", "verdict on the job: looks hung", where="/x/train.py:29")
    assert first(message) == DESYNC
    assert first(message, diverged) == cause
