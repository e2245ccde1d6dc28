"""Prove a fix by the check that failed: the job on a patched copy, or the same probe once more."""

import asyncio
import re
import secrets
import time
from pathlib import Path

import msgspec

from ...knowledge.schema import Cause, Intrusiveness, Knowledge, Verification
from ..errors import UserError
from ..evidence import Status
from ..probes.context import ProbeContext
from ..probes.run_probes import judge_snapshot, run_probes
from ..session import OUTCOME_STATUS, Outcome
from ..snapshot import Snapshot
from ..system.subprocesses import ProcessOutcome, run_process
from ..system.supervisor import remove_tree
from ..system.temporary_directories import make_temporary_directory
from ..text.units import seconds_text
from ..triage.types import JobReport
from .code_state import changed_since_state, read_code_state
from .progress_check import ProgressCheck
from .proof_plan import ProofPlan, elapsed_s
from .relaunch import Relaunch, move_to_copy
from .sandbox import (
    directories_written,
    limited_command,
    offline_environment,
    private_command,
    private_mounts_problem,
    refuse_unread_writers,
    refuse_writes_outside,
    write_limit_problem,
    write_plan,
)
from .state_before import CheckResult, check_result
from .watch_relaunch import MARK, NAME_SIGNALS, Progress, RunResult, wait_until_gone, watch

MOST_ABORTED = 2  # runs that torch aborted at their end, before that is the result
NOT_PROBES = ("job", "review")  # values of a cause's ``verify`` that are not probes of this machine
EXCEPTION = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")


class ProofResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a proof.

    ``what`` is one line, ``detail`` the circumstances (files left out, the last lines), ``findings`` the ids of the
    findings of the check. ``before`` and ``after`` are the states that were compared; without a fault ``before``
    nothing is proved. ``code`` are the digests of the files that ran, empty for a probe.
    """

    outcome: Outcome
    what: str
    detail: str
    elapsed_s: float
    findings: list[str] = []
    before: str = ""
    after: str = ""
    code: dict[str, list[str]] = {}

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

    def changed_since(self) -> list[str]:
        """Return the files of the job that are no longer as they were when they were proved."""
        return changed_since_state(self.code) if self.passed else []

    def as_of_now(self) -> "ProofResult":
        """Return the result; a proof of other code than that of now shows nothing of it."""
        if not (changed := self.changed_since()):
            return self
        what = f"{_names(changed)} since it was proved: prove it again"
        return msgspec.structs.replace(self, outcome="not shown here", what=what, detail="")


async def prove_by_run(
    plan: ProofPlan, report: JobReport | None = None, *, limit_s: float | None = None, progress: Progress | None = None
) -> ProofResult:
    """Start the job of a plan, so that nothing of the user's is changed, and watch it. It is ended in any case.

    It runs in a private file system where the kernel allows one, else on a copy of the code outside of which, if the
    kernel can enforce it, nothing can be written. ``report``: the job as it
    failed, if that was seen; proved if it now ends with code 0 or every rank gets past the line of the culprit.

    Raises:
        UserError: Nothing keeps the run away from the user's files.
    """
    report_progress = progress or (lambda _line: None)
    started = time.monotonic()
    code = await asyncio.to_thread(read_code_state, plan.relaunch)
    aborted = 0
    while True:
        relaunch, result = await _run_once(plan, report, limit_s or plan.limit.limit_s, report_progress)
        if not result.aborted_at_exit or aborted == MOST_ABORTED:
            break
        aborted += 1
        report_progress("torch aborted a rank while Python was exiting; once more")
    outcome, what = _compare_runs(plan, report, result)
    changed = await asyncio.to_thread(changed_since_state, code)
    if outcome == "proved" and changed:
        outcome, what = "not shown here", f"{what}, but {_names(changed)} while it ran: prove it again"
    left_out = f"not copied: {', '.join(relaunch.left_out[:5])}. " if relaunch.left_out else ""
    tries = _tries_text(aborted) if aborted and not result.aborted_at_exit else ""
    output = f"last output: {result.detail}" if result.detail else ""
    return ProofResult(
        outcome=outcome,
        what=what,
        detail=f"{tries}{left_out}{output}".rstrip(),
        elapsed_s=elapsed_s(started),
        findings=["job.all-ranks-moved"] if outcome == "proved" else [],
        before=plan.before,
        after=result.what,
        code=code,
    )


def _tries_text(aborted: int) -> str:
    runs = "the run before this one" if aborted == 1 else f"the {aborted} runs before this one"
    return f"In {runs} torch aborted a rank while Python was exiting (a thread of gloo still ran, a fault of torch). "


async def _run_once(
    plan: ProofPlan, report: JobReport | None, limit_s: float, report_progress: Progress
) -> tuple[Relaunch, RunResult]:
    """Start the job in a directory of its own and watch it; return how it was started, and the result."""
    directory = make_temporary_directory("ddpwizard-proof-")
    mark = secrets.token_hex(8)
    task: asyncio.Task[ProcessOutcome] | None = None
    try:
        relaunch, command = await _isolate(plan, directory, report_progress)
        environ = {**offline_environment(relaunch.environ, relaunch.cwd), **NAME_SIGNALS, MARK: mark}
        report_progress("starting it again: " + " ".join(relaunch.command))
        task = asyncio.ensure_future(
            run_process(command, limit_s=limit_s, env=environ, cwd=relaunch.cwd, scratch=directory)
        )
        check = ProgressCheck(report, relaunch) if report else None
        return relaunch, await watch(task, check, mark, plan.ranks, plan.steady_s, report_progress)
    finally:
        if task:
            task.cancel()
            await asyncio.wait([task])
            await wait_until_gone(mark)
        await asyncio.to_thread(remove_tree, directory)


def _names(changed: list[str]) -> str:
    """Text such as ``train.py has changed``."""
    return f"{', '.join(Path(path).name for path in changed[:3])} {'has' if len(changed) == 1 else 'have'} changed"


def _compare_runs(plan: ProofPlan, report: JobReport | None, result: RunResult) -> tuple[Outcome, str]:
    """Return the outcome of a run against the failure before, with one line about it."""
    if result.failed_code is not None and _same_error(plan.before, result.detail):
        return "still there", f"{result.what} and the same error"
    ended_as_before = result.failed_code is not None and not result.aborted_at_exit
    if report is not None and report.verdict.state == "dead" and ended_as_before:
        return "still there", result.what
    if result.outcome != "proved":
        return result.outcome, result.what
    if report is not None and not report.verdict.is_failure:
        return "not shown here", f"{result.what}, but the job was {report.verdict.state} before: this proves nothing"
    if not plan.seen_here:
        return "not shown here", f"{result.what}, and its failure was not seen on this machine before"
    if not plan.changed and not plan.other_command and not plan.environ:
        return "not shown here", f"{result.what}, but no file has changed since it failed: the failure comes and goes"
    return "proved", result.what


def _same_error(before: str, printed: str) -> bool:
    """Return whether an exception that was seen before is among the last lines."""
    return any(name in printed for name in EXCEPTION.findall(before))


async def _isolate(plan: ProofPlan, directory: Path, report_progress: Progress) -> tuple[Relaunch, list[str]]:
    """Return the relaunch and its command line, in a private file system or else on a copy.

    Raises:
        UserError: Neither keeps the run away from the user's files.
    """
    relaunch = plan.relaunch
    problem = await private_mounts_problem(directory / "trial")
    if not problem:
        report_progress("making a private copy of the files, with the fix")
        path = write_plan(directory, relaunch.files, relaunch.cwd, directories_written(relaunch, plan.written))
        return relaunch, private_command(relaunch.command, path)
    report_progress(f"copying the code, with the fix ({problem})")
    copied = await asyncio.to_thread(move_to_copy, relaunch, directory / "job")
    temporary = directory / "tmp"
    temporary.mkdir()
    copied = msgspec.structs.replace(copied, environ={**copied.environ, "TMPDIR": str(temporary)})
    await asyncio.to_thread(refuse_writes_outside, copied, problem)
    if not await write_limit_problem(directory):
        return copied, limited_command(copied.command, directory)
    await asyncio.to_thread(refuse_unread_writers, copied, problem)
    return copied, copied.command


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
        elapsed_s=elapsed_s(started),
        findings=after.shown,
        before="not checked" if before is None else ", ".join(before.wrong or before.shown) or "nothing found",
        after="not checked" if snapshot.failed else ", ".join(after.wrong or after.shown) or "nothing found",
    )
    return proof, snapshot


def is_proved_by_probe(cause: Cause, knowledge: Knowledge) -> bool:
    """Return whether a probe of this machine shows the cause, so that it can be run again."""
    verify = cause.verify
    return verify.probe in knowledge.probes and verify.probe not in NOT_PROBES and bool(verify.gone)


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
        check = next(check for check in checks if check.finding in after.wrong)
        seen = "" if before is None or before.wrong else "it has appeared since: "
        return "still there", seen + check.title, check.detail
    found = "; ".join(check.title for check in checks[:3])
    if checks and all(check.status in ("skip", "unknown") for check in checks):
        return "not shown here", f"{title}: this machine cannot show it: {checks[0].title}", checks[0].detail
    if before is None:
        return "not shown here", f"{title}: fine now, and not checked before a fix, so this proves nothing", found
    if not before.wrong:
        return "not shown here", f"{title}: already fine on this machine before any fix, so this proves nothing", found
    unseen = next((id_ for id_ in verify.seen if id_ not in after.shown), None)
    if unseen:
        return "still there", f"not seen yet: {knowledge.findings()[unseen]}", found
    names = " and ".join(knowledge.findings().get(id_, id_) for id_ in before.wrong[:2])
    return "proved", f"{title}: {names} before, gone now", found
