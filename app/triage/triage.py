"""From nothing, or a pid, to each job's ranks and verdict: find the jobs, look twice, judge."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ...knowledge.schema import Intrusiveness
from ..errors import InspectionError
from ..evidence import Evidence
from ..jobs import discover
from ..system.timeouts import run_in_thread
from .sampling.sampler import Progress, access_denied, sample_job
from .types import JobReport, JobState

FIND_LIMIT_S = 15.0
# What a finding says beside the verdict's own words; the others are told by those.
BESIDE = {
    "job.culprit-line-under-rank-test": "a test of the rank decides who gets there: {branch}",
    "job.collectives-in-another-order": "both sides of this condition communicate, in another order: {branch}",
    "job.error-caught-on-the-way": "an error may have been caught on the way there",
    "job.killed-for-memory": "the kernel killed it for want of memory",
    "job.waiting-at-init": "the ranks that live wait for others to join",
}
ORDER: tuple[JobState, ...] = ("hung", "dead", "unknown", "starting", "progressing")  # worst first


async def triage_jobs(
    *,
    pid: int | None = None,
    logs: Sequence[Path] = (),
    allow: Intrusiveness = "reads",
    gap_s: float = 1.0,
    progress: Progress | None = None,
) -> list[JobReport]:
    """Look at the jobs that run here, or at the one ``pid`` belongs to; the worst first.

    Two looks lie ``gap_s`` seconds apart. ``logs``: files or directories to read besides those that are found.
    ``allow="perturbs"`` lets py-spy pause a rank while it reads it.

    Raises:
        UserError: No process has that pid.
        CouldNotLook: There is no /proc, or a process may not be read.
    """
    jobs = await run_in_thread(
        lambda: discover.find_jobs() if pid is None else discover.job_of_pid(pid),
        limit_s=FIND_LIMIT_S,
        subject="the processes of this machine",
    )
    tell = progress or (lambda _line: None)
    reports = await asyncio.gather(
        *(sample_job(job, logs=logs, allow=allow, gap_s=gap_s, progress=tell) for job in jobs)
    )
    if reports and all(access_denied(report) for report in reports):
        raise InspectionError(
            f"no stack of {reports[0].job.id} could be read: {access_denied(reports[0])}",
            "run ddpwizard as the job's user or as root, with the SYS_PTRACE capability",
        )
    return sort_by_severity(reports)


def sort_by_severity(reports: Sequence[JobReport]) -> list[JobReport]:
    """The worst first."""
    return sorted(reports, key=lambda report: (ORDER.index(report.verdict.state), -report.verdict.confidence))


def evidence_of_report(report: JobReport) -> list[Evidence]:
    """What the verdict over a job says in the terms of the knowledge base."""
    verdict = report.verdict
    pids = {row.rank: row.pid for row in report.ranks}
    rank = verdict.culprits[0] if verdict.culprits else None
    host = report.nodes[0] if report.nodes else ""
    found: list[Evidence] = []
    for place, finding in enumerate(verdict.findings):
        words = BESIDE.get(finding, "")
        alone = verdict.why if place == 0 else finding.removeprefix("job.").replace("-", " ")
        what = words.format(branch=verdict.branch) if words else alone
        where = verdict.branch if "{branch}" in words else verdict.where
        pid = pids.get(rank) if rank is not None else None
        found.append(Evidence(finding, "job", what, where=where or "", rank=rank, host=host, pid=pid))
    return found
