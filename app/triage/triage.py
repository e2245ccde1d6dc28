"""Find the jobs of this machine, sample their ranks and judge each job."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ...knowledge.schema import Intrusiveness
from ..errors import InspectionError, UserError
from ..evidence import STARTING, Evidence, answer_id, verdict_id
from ..jobs import discover
from ..jobs.shared_port import shared_port_note
from ..jobs.types import Job
from ..system.waiting import run_in_thread
from ..text.units import count_text
from .other_hosts import runs_on_one_node
from .phrases import JOB_STATE_TEXT
from .sampling.sampler import Progress, access_denied, sample_job
from .types import JobReport, JobState, Observation, Verdict

FIND_LIMIT_S = 15.0
# Text of findings that the text of the verdict does not include.
FINDING_TEXT = {
    "job.culprit-line-under-rank-test": "this condition lets only some ranks reach the call",
    "job.collectives-in-another-order": "the two branches of this condition call collectives in a different order",
    "job.diverged-by-own-data": "each rank decides for itself here, by data of its own, and the ranks have diverged",
    "job.loop-left-by-condition": "a rank may have left the loop by this condition, which each rank decides for itself",
    "job.error-caught-on-the-way": "a rank may have skipped the call after an error that the script caught",
    "job.killed-for-memory": "the kernel's OOM killer ended it: out of memory",
    "job.waiting-at-init": "the ranks that are alive wait for others to join",
}
AT_BRANCH = (  # seen at the branch of the verdict
    *("job.culprit-line-under-rank-test", "job.collectives-in-another-order"),
    *("job.loop-left-by-condition", "job.diverged-by-own-data"),
)
SEVERITY: tuple[JobState, ...] = ("hung", "dead", "unknown", "starting", "progressing")  # worst first


async def triage_jobs(
    *,
    pid: int | None = None,
    logs: Sequence[Path] = (),
    allow: Intrusiveness = "reads",
    gap_s: float = 1.0,
    progress: Progress | None = None,
) -> list[JobReport]:
    """Inspect the jobs that run here, or only the job of ``pid``, and return their reports, the worst first.

    ``gap_s``: seconds between two samples; ``logs``: files or directories to read in addition to those that are found.
    ``allow="perturbs"`` lets py-spy pause a rank while it reads its stack.

    Raises:
        UserError: No process has that pid.
        InspectionError: There is no /proc, or no process may be read.
    """
    jobs = await run_in_thread(
        lambda: discover.find_jobs() if pid is None else discover.job_of_pid(pid),
        limit_s=FIND_LIMIT_S,
        subject="the processes of this machine",
    )

    async def inspect(job: Job) -> JobReport:
        """Any process can claim to be a rank: what cannot be inspected must not hide the other jobs."""
        try:
            report = await sample_job(job, logs=logs, allow=allow, gap_s=gap_s, progress=progress)
            return _with_problem(report, shared_port_note(job, jobs))
        except Exception as error:
            if len(jobs) == 1:
                raise
            return uninspected(job, error)

    reports = await asyncio.gather(*map(inspect, jobs))
    if reports and all(access_denied(report) for report in reports):
        raise InspectionError(
            f"no stack of {reports[0].job.id} could be read: {access_denied(reports[0])}",
            "run ddpwizard as the job's user or as root, with the SYS_PTRACE capability",
        )
    return sort_by_severity(reports)


def _with_problem(report: JobReport, problem: str) -> JobReport:
    if not problem:
        return report
    observed = msgspec.structs.replace(report.observed, problems=[problem, *report.observed.problems])
    return msgspec.structs.replace(report, observed=observed)


def uninspected(job: Job, error: Exception) -> JobReport:
    """Return the report of a job that could not be inspected."""
    reason = error.message if isinstance(error, UserError) else f"{type(error).__name__}: {str(error)[:200]}"
    return JobReport(
        launcher=job.launcher,
        world_size=job.world_size,
        nodes=[job.host],
        ranks=[],
        verdict=Verdict(
            state="unknown",
            cause=None,
            culprits=[],
            collective=None,
            where=None,
            branch=None,
            why=f"This job could not be inspected: {reason}",
            confidence=0.0,
        ),
        observed=Observation(job=job, seen=[]),
    )


def sort_by_severity(reports: Sequence[JobReport]) -> list[JobReport]:
    """Return the reports, the worst first."""
    return sorted(reports, key=lambda report: (SEVERITY.index(report.verdict.state), -report.verdict.confidence))


def evidence_of_report(report: JobReport, findings: Mapping[str, str]) -> list[Evidence]:
    """Convert the verdict on a job to evidence; ``findings`` has the text of each finding of the knowledge base."""
    verdict = report.verdict
    pids = {row.rank: row.pid for row in report.ranks}
    rank = verdict.culprits[0] if verdict.culprits else None
    host = report.nodes[0] if report.nodes else ""
    found: list[Evidence] = []
    for index, finding in enumerate(verdict.findings):
        text = FINDING_TEXT.get(finding, "")
        what = text or (verdict.why if index == 0 else findings[finding])
        where = verdict.branch if finding in AT_BRANCH else verdict.where
        pid = pids.get(rank) if rank is not None else None
        found.append(Evidence(finding, "job", what, where=where or "", rank=rank, host=host, pid=pid))
    if verdict.state == "starting" and not verdict.cause:
        found.append(Evidence(STARTING, "job", verdict.why, host=host))
    if verdict.cause:
        what = f"verdict on the job: {JOB_STATE_TEXT[verdict.state][1]}"
        found.append(
            Evidence(verdict_id(verdict.cause), "job", what, where=verdict.where or "", strength=verdict.confidence)
        )
    return [*found, *_answers_of_job(report)]


def _answers_of_job(report: JobReport) -> list[Evidence]:
    """Return the answers that the job itself gives to questions of the knowledge base."""
    found: list[Evidence] = []
    one = runs_on_one_node(report)
    if one is not None:
        what = f"{count_text(report.world_size, 'rank')} on {'one node' if one else 'several nodes'}"
        found.append(Evidence(answer_id("how-many-nodes", "one" if one else "several"), "job", what))
    if uses_no_gpu(report):
        found.append(Evidence(answer_id("gpu-use", "no-gpu"), "job", "no rank uses a GPU"))
    return found


def uses_no_gpu(report: JobReport) -> bool:
    """Return whether every rank of a job that is past its start was sampled, and none has a GPU open."""
    sampled = [seen.samples[-1] for seen in report.observed.seen if seen.samples and not seen.samples[-1].problem]
    is_past_start = report.verdict.state in ("hung", "progressing")
    return is_past_start and len(sampled) >= report.world_size and not any(sample.gpu for sample in sampled)
