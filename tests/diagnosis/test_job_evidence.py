"""Evidence of a triage: the verdict, and what the culprit printed last."""

from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.diagnosis import job_evidence
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.job_evidence import add_triage, evidence_of_output, recorded_job
from ddpwizard.app.fixes.flow import FixFlow
from ddpwizard.app.session import Session
from ddpwizard.app.triage.types import JobReport
from ddpwizard.app.triage.verdict import judge_job
from helpers.built_in_knowledge import built_in_knowledge
from helpers.recorded_state import report

KNOWLEDGE = built_in_knowledge()
OUTPUT = [
    "step 41 loss 0.3",
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 12, in step',
    "    image = sample['image_path']",
    "KeyError: 'image_path'",
]


def printed_error(base: JobReport) -> JobReport:
    """Return the job with the traceback in the output of its culprits."""
    seen = [
        msgspec.structs.replace(each, output=OUTPUT, output_from="/home/me/rank0.log")
        if each.process.rank in base.verdict.culprits
        else each
        for each in base.observed.seen
    ]
    return msgspec.structs.replace(base, observed=msgspec.structs.replace(base.observed, seen=seen))


def test_the_last_output_of_the_culprit_is_evidence_once(tmp_path: Path):
    base = report(tmp_path)
    recorded = printed_error(base)
    found = {item.id: item for item in evidence_of_output(recorded, KNOWLEDGE)}
    assert found["log.script-error"].rank in base.verdict.culprits
    assert "KeyError: 'image_path' at train.py:12" in found["log.script-error"].what
    assert found["log.script-error"].where == "/home/me/rank0.log:2"
    case = Case(KNOWLEDGE)
    add_triage(case, [recorded])
    add_triage(case, [recorded])
    assert [item.id for item in case.evidence].count("log.script-error") == 1
    assert case.diagnosis().causes[0].id == base.verdict.cause, "the verdict stays first"


def test_the_error_of_a_rank_that_the_others_wait_for_supports_its_failure(tmp_path: Path):
    base = printed_error(report(tmp_path))
    cause = "rank-died-survivors-wait"
    verdict = msgspec.structs.replace(base.verdict, cause=cause, findings=["job.rank-dead"])
    case = Case(KNOWLEDGE)
    add_triage(case, [msgspec.structs.replace(base, verdict=verdict)])
    first = case.diagnosis().causes[0]
    assert first.id == cause
    assert any("KeyError: 'image_path'" in line.what for line in first.because)
    assert first.against == []


def test_the_fix_of_a_failed_rank_names_the_error_that_it_printed(tmp_path: Path):
    base = printed_error(report(tmp_path))
    cause = "rank-died-survivors-wait"
    verdict = msgspec.structs.replace(base.verdict, cause=cause, findings=["job.rank-dead"])
    found = msgspec.structs.replace(base, verdict=verdict)
    fix = FixFlow(KNOWLEDGE.causes[cause], KNOWLEDGE, Session.new(), report=found).build()[0]
    assert fix.text.startswith("Rank 0 failed first at /home/me/train.py:12: KeyError: 'image_path'.")
    assert (fix.places[0].path, fix.places[0].text) == ("/home/me/train.py", "image = sample['image_path']")


def test_the_output_of_other_ranks_is_not_read(tmp_path: Path):
    assert evidence_of_output(report(tmp_path), KNOWLEDGE) == []


def test_a_session_keeps_the_job_so_that_its_fixes_are_as_concrete_later(tmp_path: Path):
    """The fixes of ``ddpwizard sessions resume`` after ``ddpwizard run``: the job has ended."""
    found = judge_job(report(tmp_path).observed)
    cause = found.verdict.cause or ""
    case = Case(KNOWLEDGE, Session.new())
    add_triage(case, [found])
    session = Session.load(case.session.id if case.session else "")
    job = recorded_job(session, cause)
    assert job and job.verdict == found.verdict
    assert recorded_job(session, "uneven-inputs") is None

    entry = KNOWLEDGE.causes[cause]
    live = FixFlow(entry, KNOWLEDGE, session, report=found)
    later = FixFlow(entry, KNOWLEDGE, session, job=job)
    assert later.build() == live.build()
    first = later.build()[0]
    assert first.again.startswith("torchrun --nproc-per-node=4 ")
    assert later.proof_kind(first) == "command", "its environment was not kept, so its command line is asked for"


def test_a_job_that_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_evidence, "OBSERVED_LIMIT_BYTES", 100)
    case = Case(KNOWLEDGE, Session.new())
    found = report(tmp_path)
    add_triage(case, [found])
    assert case.session and recorded_job(case.session, found.verdict.cause or "") is None
