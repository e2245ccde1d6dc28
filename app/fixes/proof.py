"""Prove a fix by the check that failed: the job on a patched copy, or the same probe once more."""

import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from os.path import realpath
from pathlib import Path

import msgspec

from ...knowledge.schema import Cause, Intrusiveness, Knowledge, Verification
from ..errors import UserError
from ..evidence import Status
from ..jobs import discover
from ..jobs.types import Job
from ..probes.context import ProbeContext
from ..probes.run_probes import judge_snapshot, run_probes
from ..session import OUTCOME_STATUS, Outcome
from ..snapshot import Snapshot
from ..system import proc_files, procfs
from ..system.subprocesses import ProcessOutcome, run_process
from ..text.units import seconds_text
from ..triage import phrases
from ..triage.rank_activity.frames import user_frames
from ..triage.sampling import stacks
from ..triage.sampling.sampler import build_observation
from ..triage.types import JobReport, Sample
from ..triage.verdict import judge_job
from .progress_check import ProgressCheck
from .relaunch import Relaunch, move_to_copy, plan_relaunch
from .sandbox import (
    directories_written,
    offline_environment,
    private_command,
    private_mounts_problem,
    refuse_held_gpus,
    refuse_writes_outside,
    remove_directory,
    write_plan,
    written_paths,
)
from .state_before import CheckResult, check_result
from .types import Fix

Progress = Callable[[str], None]
MARK = "DDPWIZARD_PROOF"  # in the environment of the relaunched job, to recognise its processes
TEMP = realpath(tempfile.gettempdir())  # as /proc shows it
SAMPLE_INTERVAL_S = 1.0
# A new hang is reported after this time without progress (seconds) at this confidence: ranks that contradict
# each other will not recover, a rank that only waits may still continue.
HUNG_AFTER = ((2.0, 0.7), (12.0, 0.0))
END_TIMEOUT_S = 10.0
NOT_PROBES = ("job", "review")  # values of a cause's ``verify`` that are not probes of this machine
FAILED = ("hung", "dead")  # states of a job that is wrong; the proof shows that it no longer is
TORCHRUN_SUMMARY = "torch/distributed/elastic/"


class ProofResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a proof.

    ``what`` is one line, ``detail`` the circumstances (files left out, the last lines), ``findings`` the ids of the
    findings of the check. ``before`` and ``after`` are the states that were compared; without a fault ``before``
    nothing is proved.
    """

    outcome: Outcome
    what: str
    detail: str
    elapsed_s: float
    findings: list[str] = []
    before: str = ""
    after: str = ""

    @property
    def passed(self) -> bool:
        """True only if the fix is proved."""
        return self.outcome == "proved"

    @property
    def status(self) -> Status:
        """The status whose sign marks the outcome."""
        return OUTCOME_STATUS[self.outcome]

    @property
    def summary(self) -> str:
        """Text such as ``proved in 6 s: every rank got past train.py:88``."""
        time_taken = f" in {seconds_text(self.elapsed_s, whole=True)}" if self.passed else ""
        return f"{self.outcome}{time_taken}: {self.what}"


async def prove_job(
    report: JobReport,
    fix: Fix,
    *,
    limit_s: float = 60,
    progress: Progress | None = None,
    gpu_memory_bytes: Mapping[int, int] | None = None,
) -> ProofResult:
    """Start the job again with the fix, on a free port, so that nothing of the user's is changed.

    It runs in a private file system where the kernel allows one, else on a copy of the code. Proved if the job was hung
    or dead, and now ends with code 0 or every rank gets past the line of the culprit. It is ended in any case.
    ``gpu_memory_bytes``: the memory of each GPU.

    Raises:
        UserError: The job cannot be started again from here; the message gives the reason.
    """
    report_progress = progress or (lambda _line: None)
    started = time.monotonic()
    refuse_other_users(report)
    refuse_held_gpus(report, gpu_memory_bytes or {})
    directory = Path(tempfile.mkdtemp(prefix="ddpwizard-proof-", dir=TEMP))
    mark = secrets.token_hex(8)
    task: asyncio.Task[ProcessOutcome] | None = None
    try:
        relaunch = await asyncio.to_thread(plan_relaunch, report.job, fix)
        relaunch, command = await _isolate(relaunch, directory, report_progress)
        environ = {**offline_environment(relaunch.environ, relaunch.cwd), MARK: mark}
        report_progress("starting it again: " + " ".join(relaunch.command))
        task = asyncio.ensure_future(run_process(command, limit_s=limit_s, env=environ, cwd=relaunch.cwd))
        outcome, what, detail = await _watch(
            task, ProgressCheck(report, relaunch, fix), mark, report.world_size, report_progress
        )
        if relaunch.left_out:
            detail = f"not copied: {', '.join(relaunch.left_out[:5])}. {detail}".rstrip()
        if outcome == "proved" and report.verdict.state not in FAILED:
            outcome = "not shown here"
            what = f"{what}, but the job was {report.verdict.state} before, so this proves nothing"
        return ProofResult(
            outcome=outcome,
            what=what,
            detail=detail,
            elapsed_s=round(time.monotonic() - started, 1),
            findings=["job.all-ranks-moved"] if outcome == "proved" else [],
            before=report.verdict.state,
            after=what,
        )
    finally:
        if task:
            task.cancel()
            await asyncio.wait([task])
            await _until_gone(mark)
        await asyncio.to_thread(remove_directory, directory)


async def _isolate(relaunch: Relaunch, directory: Path, report_progress: Progress) -> tuple[Relaunch, list[str]]:
    """Return the relaunch and its command line, in a private file system or else on a copy.

    Raises:
        UserError: Neither keeps the run away from the user's files.
    """
    written = await asyncio.to_thread(written_paths, relaunch)
    problem = await private_mounts_problem(directory / "trial")
    if not problem:
        report_progress("applying the fix in a private view of the files: nothing of yours is changed")
        plan = write_plan(directory, relaunch.files, relaunch.cwd, directories_written(relaunch, written))
        return relaunch, private_command(relaunch.command, plan)
    report_progress(f"copying the job's files and applying the fix to the copy ({problem})")
    copied = await asyncio.to_thread(move_to_copy, relaunch, directory / "job")
    refuse_writes_outside(await asyncio.to_thread(written_paths, copied), copied.copy, problem)
    return copied, copied.command


def refuse_other_users(report: JobReport) -> None:
    """Refuse to run the code of another user with our rights.

    Raises:
        UserError: The job belongs to another user.
    """
    for process in report.job.processes:
        owner = proc_files.user_of(process.pid)
        if owner is not None and owner != os.getuid():
            raise UserError(
                f"the job belongs to user {owner}, and its code would run with your rights",
                "run ddpwizard as that user to prove the fix",
            )


async def prove_probe(
    cause: Cause, before: CheckResult | None, context: ProbeContext, knowledge: Knowledge, granted: Intrusiveness
) -> tuple[ProofResult, Snapshot]:
    """Run the probe of the cause again: proved if it showed the fault ``before`` and does not any more.

    Return the result and what the probe collected.

    Raises:
        UserError: The cause is proved by a job or a script, not by a probe of this machine.
    """
    verify = cause.verify
    if not is_proved_by_probe(cause, knowledge):
        raise UserError(
            f"{cause.title}: no check of this machine shows it", "correct it, then start the job again and watch it"
        )
    started = time.monotonic()
    title = knowledge.probes[verify.probe].title
    snapshot = await run_probes([verify.probe], context, knowledge, granted=granted)
    after = check_result(verify, snapshot)
    outcome, what, detail = _compare_checks(verify, before, snapshot, after, title, knowledge)
    proof = ProofResult(
        outcome=outcome,
        what=what,
        detail=detail,
        elapsed_s=round(time.monotonic() - started, 1),
        findings=after.shown,
        before="not checked" if before is None else ", ".join(before.wrong or before.shown) or "nothing found",
        after="not checked" if snapshot.failed else ", ".join(after.wrong or after.shown) or "nothing found",
    )
    return proof, snapshot


def is_proved_by_probe(cause: Cause, knowledge: Knowledge) -> bool:
    """Return whether a probe of this machine shows the cause, so that it can be run again."""
    return cause.verify.probe in knowledge.probes and cause.verify.probe not in NOT_PROBES


def _compare_checks(
    verify: Verification,
    before: CheckResult | None,
    snapshot: Snapshot,
    after: CheckResult,
    title: str,
    knowledge: Knowledge,
) -> tuple[Outcome, str, str]:
    """Return the outcome of the same check before and after a fix, with one line about it and its detail."""
    checks = judge_snapshot(snapshot, [verify.probe])
    if problem := snapshot.failed.get(verify.probe):
        return "not shown here", f"could not inspect {title}", problem
    if after.wrong:
        check = next((check for check in checks if check.finding in after.wrong), None)
        seen = check.title if check else f"{title}: not seen yet: {knowledge.findings()[verify.seen[0]]}"
        if before is None or before.wrong:
            return "still there", seen, check.detail if check else ""
        return "still there", f"it has appeared since: {seen}", check.detail if check else ""
    found = "; ".join(check.title for check in checks[:3])
    if before is None:
        return "not shown here", f"{title}: fine now, and not checked before a fix, so this proves nothing", found
    if not before.wrong:
        return "not shown here", f"{title}: already fine on this machine before any fix, so this proves nothing", found
    unseen = next((id_ for id_ in verify.seen if id_ not in after.shown), None)
    if unseen:
        return "still there", f"not seen yet: {knowledge.findings()[unseen]}", found
    names = " and ".join(knowledge.findings().get(id_, id_) for id_ in before.wrong[:2])
    return "proved", f"{title}: {names} before, gone now", found


async def _watch(
    task: asyncio.Task[ProcessOutcome], course: ProgressCheck, mark: str, world_size: int, report_progress: Progress
) -> tuple[Outcome, str, str]:
    """Sample the relaunched ranks until they have passed, hang again, or the run is over."""
    samples: list[tuple[Job, dict[int, Sample]]] = []
    reported = 0
    while not task.done():
        await asyncio.wait([task], timeout=SAMPLE_INTERVAL_S)
        job = _marked(mark)
        if task.done() or job is None:
            continue
        look = await stacks.sample_stacks(job.processes)
        course.see({p.rank: user_frames(look[p.pid].stack) for p in job.processes if p.rank is not None})
        if len(course.passed) > reported:
            reported = len(course.passed)
            report_progress(
                f"{phrases.ranks_phrase(sorted(course.passed))} got past {phrases.short_place(course.line)}"
            )
        if len(course.passed) == world_size:
            return "proved", f"every rank got past {phrases.short_place(course.line)}", "the job was ended after that"
        samples = [(j, s) for j, s in samples if s.keys() == look.keys()] + [(job, look)]
        if hung := _hung(samples):
            return "still there", f"it hangs again: {hung}", ""
    outcome = task.result()
    if outcome.status == "ok":
        return "proved", "the job ran to its end with code 0", _last_lines(outcome.log)
    if outcome.status == "timed_out":
        seen = f"{len(course.passed)} of {world_size} ranks were seen past {phrases.short_place(course.line)}"
        what = f"not finished within {seconds_text(outcome.elapsed_s, whole=True)}"
        return "not shown here", what, f"it did not hang; {seen}"
    return "not shown here", f"the job ended with code {outcome.code}", _last_lines(outcome.log)


def _hung(samples: list[tuple[Job, dict[int, Sample]]]) -> str:
    """Return why the relaunched job hangs, or "" while it does not."""
    job, last = samples[-1]
    for still_s, sure in HUNG_AFTER:
        first = next((look for _, look in reversed(samples) if _at(last) - _at(look) >= still_s), None)
        if first is None:
            return ""
        verdict = judge_job(build_observation(job, [first, last])).verdict
        if verdict.state == "hung" and verdict.confidence >= sure:
            return verdict.why
    return ""


def _at(look: dict[int, Sample]) -> float:
    return next(iter(look.values())).at if look else 0.0


def _marked(mark: str) -> Job | None:
    found = discover.find_jobs()
    return next((job for job in found if any(p.environ.get(MARK) == mark for p in job.processes)), None)


async def _until_gone(mark: str) -> None:
    until = time.monotonic() + END_TIMEOUT_S
    while _alive(mark) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def _alive(mark: str) -> bool:
    return any(proc.environ.get(MARK) == mark for proc in procfs.all_processes().values())


def _last_lines(log: str) -> str:
    """Return the last lines of the ranks without torchrun's summary, which says less than the lines before it."""
    lines = [line for line in log.splitlines() if line.strip() and not line.startswith("***")]
    summary = next((i for i, line in enumerate(lines) if TORCHRUN_SUMMARY in line), len(lines))
    return "\n".join((lines[:summary] or lines)[-6:])
