"""A job whose ranks wait in vain, where the review of its files tells how they diverged."""

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.job_evidence import add_triage
from ddpwizard.app.diagnosis.reviewed_job import divergence_finding, explain_by_review, is_open, review_running_files
from ddpwizard.app.fixes.flow import FixFlow
from ddpwizard.app.session import Session
from ddpwizard.app.triage.verdict import judge_job
from helpers.built_in_knowledge import built_in_knowledge
from helpers.diverged_jobs import ALIKE, BY_CLOCK, BY_RANK, LEFT, SKIPPED, hung_report
from helpers.synthetic_job import SCRIPT, job, lines_with, observation, stack, still
from msgspec.structs import replace

KNOWLEDGE = built_in_knowledge()


@pytest.mark.parametrize(
    ("text", "function", "rule", "cause"),
    [
        (SKIPPED, "", "DW411", "collective-desync"),
        (BY_CLOCK, "train", "DW406", "per-rank-decision"),
    ],
)
def test_cause_is_that_of_the_finding(text: str, function: str, rule: str, cause: str) -> None:
    report = hung_report(text, function)
    assert is_open(report)
    assert report.verdict.cause is None
    finding = divergence_finding(report, review_running_files(report, KNOWLEDGE), KNOWLEDGE)
    assert finding
    assert finding.rule == rule
    verdict = explain_by_review(report, KNOWLEDGE).verdict
    assert (verdict.cause, verdict.branch) == (cause, f"{SCRIPT}:{lines_with(text, 'PARTS')[0]}")
    assert finding.message in verdict.why
    assert verdict.confidence >= report.verdict.confidence


@pytest.mark.parametrize("finding", ["job.recorder-size-mismatch", "job.log-names-mismatch", "job.ras-counts-differ"])
def test_records_that_differ_are_explained_too(finding: str) -> None:
    report = hung_report(SKIPPED)
    verdict = replace(report.verdict, cause="collective-desync", findings=[finding], culprits=[0, 1], confidence=0.45)
    explained = explain_by_review(replace(report, verdict=verdict), KNOWLEDGE).verdict
    assert explained.branch == f"{SCRIPT}:{lines_with(SKIPPED, 'PARTS')[0]}"
    assert (explained.culprits, explained.confidence) == ([0, 1], 0.45)


def test_what_the_ranks_show_is_not_replaced() -> None:
    (line,) = lines_with(BY_RANK, "WAIT")
    (inside,) = lines_with(BY_RANK, "PARTS")
    waits = [stack("barrier", ("<module>", inside)), stack("backward", ("<module>", line))]
    report = judge_job(observation(job(2), {100 + at: still(each) for at, each in enumerate(waits)}, {SCRIPT: BY_RANK}))
    assert report.verdict.cause == "rank-conditional-collective"
    assert explain_by_review(report, KNOWLEDGE) is report


@pytest.mark.parametrize(("text", "function"), [(ALIKE, ""), (LEFT, "train")])
def test_cause_stays_open_without_a_finding_where_the_ranks_are(text: str, function: str) -> None:
    report = hung_report(text, function)
    assert is_open(report)
    assert explain_by_review(report, KNOWLEDGE) is report


def test_longer_time_out_is_not_the_first_fix() -> None:
    report = explain_by_review(hung_report(SKIPPED), KNOWLEDGE)
    session = Session.new()
    case = Case(KNOWLEDGE, session)
    add_triage(case, [report])
    causes = case.diagnosis().causes
    assert causes[0].id == "collective-desync"
    flow = FixFlow(
        KNOWLEDGE.causes[causes[0].id],
        KNOWLEDGE,
        session,
        report=report,
        finding=divergence_finding(hung_report(SKIPPED), review_running_files(report, KNOWLEDGE), KNOWLEDGE),
    )
    first = flow.build()[0]
    assert "timeout" not in first.diff()
    assert first.places[0].line == lines_with(SKIPPED, "PARTS")[0]


SKIPS = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
def main(data):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(2, 2))
    loader = DataLoader(data, sampler=DistributedSampler(data))
    for batch in loader:
        loss = model(batch).sum()
        if torch.isnan(loss):  # PARTS
            continue
        loss.backward()  # STEP
    dist.all_reduce(loss)  # SUM
main(torch.ones(9, 2))
"""


def test_loop_that_is_as_long_on_every_rank_is_not_blamed() -> None:
    parts, step, total = lines_with(SKIPS, "PARTS", "STEP", "SUM")
    waits = [stack("backward", ("<module>", 15), ("main", step))] * 2
    waits.append(stack("all_reduce", ("<module>", 15), ("main", total)))
    seen = {100 + rank: still(each) for rank, each in enumerate(waits)}
    report = judge_job(observation(job(3), seen, {SCRIPT: SKIPS}))
    assert (report.verdict.cause, report.verdict.culprits) == ("collective-desync", [2])
    explained = explain_by_review(report, KNOWLEDGE)
    assert (explained.verdict.cause, explained.verdict.branch) == ("per-rank-decision", f"{SCRIPT}:{parts}")
    case = Case(KNOWLEDGE, Session.new())
    add_triage(case, [explained])
    assert case.diagnosis().causes[0].id == "per-rank-decision"
