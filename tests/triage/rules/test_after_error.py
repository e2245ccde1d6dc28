"""The rule for a rank that is blocked in an ``except`` or ``finally`` block, while others wait in the ``try``."""

import msgspec
import pytest
from ddpwizard.app.triage.types import JobLog, LogEvent, Verdict
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, lines_with, observation, stack, still

TEXT = """
def main():
    try:
        for batch in loader:  # LOOP
            loss.backward()  # STEP
    except Exception as error:  # CAUGHT
        report(error)
        time.sleep(3600)  # KEEP
        raise
    finally:
        dist.barrier()  # FINAL
main()  # CALL
"""
FAILED = "rank 0: training failed: KeyError('label 9 of batch 3')"
TRACEBACK = LogEvent(
    kind="traceback",
    text="builtins.KeyError: 'label 9'   at /home/ana/run/data.py:16 in __getitem__",
    where="/tmp/run/100.log:3",
    values={"exception": "KeyError", "location": "/home/ana/run/data.py:16 in __getitem__"},
)


def judge(place: str, output: list[str], *events: LogEvent, collective: str | None = None, ranks: int = 3) -> Verdict:
    """Return the verdict if rank 0 is at a place with that output, and the other ranks in the backward pass."""
    at, step, call = lines_with(TEXT, f"# {place}", "# STEP", "# CALL")
    samples = {100 + rank: still(stack("backward", ("<module>", call), ("main", step))) for rank in range(1, ranks)}
    samples[100] = still(stack(collective, ("<module>", call), ("main", at)))
    observed = observation(job(ranks), samples, {SCRIPT: TEXT})
    first, *rest = observed.seen
    first = msgspec.structs.replace(first, output=output, output_from="/tmp/run/100.log")
    log = JobLog(files=["/tmp/run/100.log"], facts=list(events)) if events else None
    return judge_job(msgspec.structs.replace(observed, seen=[first, *rest], log=log)).verdict


def test_rank_that_sleeps_in_a_handler_has_failed_and_is_not_slow() -> None:
    verdict = judge("KEEP", [FAILED])
    keep, caught = lines_with(TEXT, "# KEEP", "# CAUGHT")
    assert (verdict.state, verdict.cause, verdict.culprits) == ("hung", "script-error", [0])
    assert verdict.where == f"{SCRIPT}:{keep}"
    assert f"Rank 0 is in the `except` block at train.py:{caught} after an error: KeyError: label 9 of batch 3." in (
        verdict.why
    )


def test_error_need_not_be_printed_to_know_that_a_handler_runs() -> None:
    verdict = judge("KEEP", [])
    assert (verdict.cause, verdict.culprits) == ("script-error", [0])
    assert "after an error." in verdict.why


@pytest.mark.parametrize("ranks", [2, 3])
def test_rank_that_waits_in_a_finally_block_after_its_error_did_not_run_out_of_batches(ranks: int) -> None:
    verdict = judge("FINAL", [FAILED], TRACEBACK, collective="barrier", ranks=ranks)
    (final,) = lines_with(TEXT, "# FINAL")
    assert (verdict.cause, verdict.culprits) == ("script-error", [0])
    assert (
        f"Rank 0 raised KeyError (data.py:16) and waits in the `finally` block, in barrier at train.py:{final}."
        in verdict.why
    )


def test_rank_in_a_finally_block_without_an_error_has_left_the_loop() -> None:
    verdict = judge("FINAL", ["epoch 3 done"], collective="barrier")
    assert (verdict.cause, verdict.culprits) == ("uneven-inputs", [0])
    assert "An error may have led to the `finally` block too" in verdict.why


def test_error_that_follows_from_another_rank_is_no_failure_of_its_own() -> None:
    follows = msgspec.structs.replace(TRACEBACK, values=TRACEBACK.values | {"follows": "yes"})
    assert judge("FINAL", [FAILED], follows, collective="barrier").cause == "uneven-inputs"
