"""The fix flow: build the fixes of a cause, apply or write one, undo it, prove it.

The full screen and plain mode render it.
Each step that changes or proves something leaves its event in the session here.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ...knowledge.schema import Cause, Intrusiveness, Knowledge
from ..diagnosis.job_evidence import (
    launch_directory,
    launch_of_session,
    review_script,
    script_of_report,
    script_of_session,
    timeline_of_output,
)
from ..evidence import Evidence
from ..logs.types import Timeline
from ..probes.context import ProbeContext, level_permitted
from ..review.types import ReviewFinding
from ..session import Session
from ..snapshot import Snapshot, plain_snapshot
from ..system.files import write_new_file
from ..system.paths import relative_to_cwd
from ..triage.types import JobReport
from .apply import apply_fix
from .build import build_fixes
from .facts import CaseFacts, FixContext
from .finding_fix import fix_of_finding
from .planner_link import planner_fields
from .proof import ProofResult, is_proved_by_probe, prove_by_run, prove_probe
from .proof_plan import ProofPlan, is_started_by_fix, plan_command_proof, plan_job_proof
from .records import AppliedFix
from .state_before import check_result, failure_before, wrong_before
from .types import Fix
from .undo import undo_fix
from .watch_relaunch import Progress

STARTS_FIX = "starts this command; your files do not change (asks first)"
ProofKind = Literal["job", "probe", "command"]


class FixFlow:
    """The fixes of one cause in one case. ``report``: the job in which the cause was found, if any.

    ``job`` is a job that only gives facts: the one that the user chose, whatever its verdict, or that the session
    recorded. All files are those of this job; without any, those that the session names.
    ``finding``: the one of ``findings`` whose own fix comes first.
    ``evidence`` and ``timeline`` are those of the case. A probe above the level ``granted`` proves nothing here.
    """

    def __init__(
        self,
        cause: Cause,
        knowledge: Knowledge,
        session: Session,
        *,
        snapshot: Snapshot | None = None,
        report: JobReport | None = None,
        findings: Sequence[ReviewFinding] = (),
        finding: ReviewFinding | None = None,
        evidence: Sequence[Evidence] = (),
        timeline: Timeline | None = None,
        job: JobReport | None = None,
        granted: Intrusiveness = "allocates",
    ) -> None:
        self.cause, self.report = cause, report
        self._evidence, self._timeline, self._job = list(evidence), timeline, report or job
        self._knowledge, self._session, self._snapshot = knowledge, session, snapshot
        self._findings, self._finding = list(findings), finding
        self._granted: Intrusiveness = granted

    def build(self) -> list[Fix]:
        """Return the fixes for this case, those first that fit what was seen. Reads scripts, writes nothing."""
        fixes = build_fixes(self.cause, self._context(), self._knowledge)
        if self._finding is None:
            return fixes
        first = fix_of_finding(self._finding, self._knowledge)
        return [first, *(fix for fix in fixes if not fix.patches or fix.patches != first.patches)]

    def planner_fields(self) -> dict[str, str]:
        """Return the fields of the planner's form that the case determines, if the cause is a matter of memory."""
        return planner_fields(CaseFacts(self._context())) if self.cause.family == "memory" else {}

    def _context(self) -> FixContext:
        script = script_of_report(self._job) if self._job else script_of_session(self._session)
        return FixContext(
            snapshot=self._snapshot,
            script=str(script) if script else None,
            report=self._job,
            findings=self._findings or review_script(script, self._knowledge),
            evidence=self._evidence,
            timeline=self._timeline,
            launch=launch_of_session(self._session),
            directory=str(launch_directory(self._session) or ""),
            output=timeline_of_output(self._job, self._knowledge) if self._job else None,
        )

    @property
    def directory(self) -> Path:
        """Directory for new files: that of the job or of the command that was started, else the working directory."""
        job = self._job if self._job and self._job.verdict.cause == self.cause.id else self.report
        directory = Path(job.job.processes[0].cwd) if job and job.job.processes else Path()
        if directory.is_absolute() and directory.is_dir():
            return directory
        return launch_directory(self._session) or Path.cwd()

    def target_paths(self, fix: Fix) -> list[str]:
        """Return the files that ``apply`` would write, relative to the working directory."""
        paths = [*(patch.path for patch in fix.patches), *(str(self.directory / name) for name in fix.files)]
        return [relative_to_cwd(path) for path in paths]

    def apply(self, fix: Fix) -> AppliedFix:
        """Write the fix to the files.

        Raises:
            UserError: As ``apply_fix``.
        """
        applied = apply_fix(fix, self.directory)
        self.record(fix, "applied" if fix.patches else "written", applied.paths, applied.id)
        return applied

    def undo(self, fix: Fix, id_: str) -> AppliedFix:
        """Take back what was applied under this id.

        Raises:
            UserError: As ``undo_fix``.
        """
        undone = undo_fix(id_)
        self.record(fix, "undone", undone.paths, undone.id)
        return undone

    def write_copies(self, fix: Fix) -> list[Path]:
        """Write the patch and the new files to the working directory, without applying anything.

        Raises:
            UserError: A file cannot be written.
        """
        written = [write_new_file(f"{fix.id}.patch", fix.diff())] if fix.patches else []
        written += [write_new_file(Path(name).name, content) for name, content in fix.files.items()]
        self.record(fix, "written", [str(path) for path in written])
        return written

    def proof_kind(self, fix: Fix) -> ProofKind | None:
        """Return what can prove a fix here: the ``job`` again, a ``probe``, a ``command`` of the user, or None."""
        job_known = self.report is not None and bool(self.report.job.processes)
        by_probe = is_proved_by_probe(self.cause, self._knowledge) and level_permitted(
            self._knowledge.probes[self.cause.verify.probe].intrusiveness, self._granted
        )
        by_run = bool(fix.patches or fix.start or fix.environ) or self.cause.verify.probe == "job"
        if (
            job_known
            and self.report
            and self.report.verdict.is_failure
            and (fix.patches or fix.environ or not by_probe)
        ):
            return "job"
        by_start = bool(fix.start or fix.environ) and by_probe and self._fault_may_be_here()
        if by_run and (not by_probe or fix.patches or by_start) and failure_before(self._session):
            return "command"
        return "probe" if by_probe else None

    def _fault_may_be_here(self) -> bool:
        """Return whether the check of the cause was made and did not see the opposite of the fault on this machine."""
        verify = self.cause.verify
        before = wrong_before(verify, self._session)
        if before is None and self._snapshot and getattr(self._snapshot, verify.probe, None) is not None:
            before = check_result(verify, self._snapshot)
        return before is not None and not set(verify.seen) & set(before.shown)

    def proof_text(self, fix: Fix) -> str:
        """Describe how the fix can be proved, or "" if nothing here can show it."""
        match self.proof_kind(fix):
            case "job" if self.report and is_started_by_fix(self.report, fix):
                return STARTS_FIX
            case "command" if fix.start:
                return STARTS_FIX
            case "job" if fix.patches:
                return "starts your command again with this fix; your files do not change (asks first)"
            case "job" if fix.environ:
                return "starts your command again with these variables; your files do not change (asks first)"
            case "job":
                return "after your edit, starts your command again; your files do not change (asks first)"
            case "command" if fix.environ:
                return "starts the command that you enter, with these variables; your files do not change (asks first)"
            case "command" if fix.patches:
                return "starts the command that you enter, with this fix; your files do not change (asks first)"
            case "command":
                return "after your edit, starts the command that you enter; your files do not change (asks first)"
            case "probe":
                return f"checks {self._knowledge.probes[self.cause.verify.probe].title} again"
        return ""

    def start_command(self, fix: Fix) -> str:
        """Return the command line that starts the job with a fix, or "" if nothing shows how it is started."""
        return fix.start or fix.again or CaseFacts(self._context()).command

    async def plan_proof(self, fix: Fix, command: str = "", python: str = "") -> ProofPlan | None:
        """Plan the run that proves a fix, to be shown and confirmed; None for a probe, which needs no question.

        ``command``: the user's command line, where the job is not known; ``python``: the user's interpreter.

        Raises:
            UserError: As ``plan_job_proof`` and ``plan_command_proof``.
        """
        kind = self.proof_kind(fix)
        if kind == "job" and self.report:
            gpus = self._snapshot.gpus.gpus if self._snapshot and self._snapshot.gpus else []
            memory = {gpu.index: gpu.memory_total_bytes for gpu in gpus}
            return await asyncio.to_thread(plan_job_proof, self.report, fix, memory)
        if kind == "command":
            return await asyncio.to_thread(plan_command_proof, command, fix, self._session, self.directory, python)
        return None

    def limit_s(self, plan: ProofPlan | None) -> float:
        """Return the time limit of a proof: that of the planned run, or that of the probe of the cause."""
        return plan.limit.limit_s if plan else self._knowledge.probes[self.cause.verify.probe].limit_s

    async def prove(
        self,
        fix: Fix,
        context: ProbeContext,
        granted: Intrusiveness,
        *,
        plan: ProofPlan | None = None,
        limit_s: float | None = None,
        progress: Progress | None = None,
    ) -> ProofResult:
        """Run what was planned, or the probe of the cause without a plan, and record the result.

        Raises:
            UserError: As ``prove_by_run`` and ``prove_probe``.
        """
        if plan:
            report = self.report if plan.from_job else None
            proof = await prove_by_run(plan, report, limit_s=limit_s, progress=progress)
        else:
            port = CaseFacts(self._context()).values.get("port", "") if self.cause.verify.probe == "ports" else ""
            if port:
                context = msgspec.structs.replace(context, environ={**context.environ, "MASTER_PORT": port})
            before = wrong_before(self.cause.verify, self._session, port)
            proof, snapshot = await prove_probe(self.cause, before, context, self._knowledge, granted)
            self._session.append("snapshot", **plain_snapshot(snapshot))  # the state before, for the next proof
        self._session.append(
            "proof", passed=proof.passed, outcome=proof.outcome, what=proof.what, detail=proof.detail,
            before=proof.before, after=proof.after, diff=fix.diff() if plan and plan.relaunch.files else "",
        )  # fmt: skip
        return proof

    def record(self, fix: Fix, action: str, paths: Sequence[str] = (), backup: str = "") -> None:
        """Append the event of an action on a fix; an applied fix is kept with its diff."""
        diff = fix.diff() if action.startswith("applied") else ""
        self._session.append(
            "fix", id=fix.id, cause=fix.cause, title=fix.title, action=action, paths=list(paths), diff=diff,
            backup=backup,
        )  # fmt: skip
