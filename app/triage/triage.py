"""Find the jobs of this machine, sample their ranks and judge each job."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ...knowledge.schema import Intrusiveness
from ..errors import InspectionError, UserError
from ..evidence import Evidence
from ..jobs import discover
from ..jobs.types import Job
from ..system.timeouts import run_in_thread
from .sampling.sampler import Progress, access_denied, sample_job
from .types import JobReport, JobState, Observation, Verdict

FIND_LIMIT_S = 15.0
# Text of findings that the text of the verdict does not include.
FINDING_TEXT = {
    "job.culprit-line-under-rank-test": "a test of the rank decides which ranks get there: {branch}",
    "job.collectives-in-another-order": "both sides of this condition communicate, in a different order: {branch}",
    "job.error-caught-on-the-way": "an error may have been caught on the way there",
    "job.killed-for-memory": "the kernel's OOM killer ended it: out of memory",
    "job.waiting-at-init": "the ranks that are alive wait for others to join",
}
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
            return await sample_job(job, logs=logs, allow=allow, gap_s=gap_s, progress=progress)
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


def evidence_of_report(report: JobReport) -> list[Evidence]:
    """Convert the verdict on a job to evidence in the terms of the knowledge base."""
    verdict = report.verdict
    pids = {row.rank: row.pid for row in report.ranks}
    rank = verdict.culprits[0] if verdict.culprits else None
    host = report.nodes[0] if report.nodes else ""
    found: list[Evidence] = []
    for index, finding in enumerate(verdict.findings):
        text = FINDING_TEXT.get(finding, "")
        default = verdict.why if index == 0 else finding.removeprefix("job.").replace("-", " ")
        what = text.format(branch=verdict.branch) if text else default
        where = verdict.branch if "{branch}" in text else verdict.where
        pid = pids.get(rank) if rank is not None else None
        found.append(Evidence(finding, "job", what, where=where or "", rank=rank, host=host, pid=pid))
    return found
