"""The fix flow: build the fixes of a cause, apply or write one, undo it, prove it. Both faces of the wizard render it.

Each step that changes or proves something leaves its event in the session here.
"""

from collections.abc import Sequence
from pathlib import Path

from ...knowledge.schema import Cause, Intrusiveness, Knowledge
from ..diagnosis.job_evidence import review_job_script, script_of_verdict
from ..evidence import Evidence
from ..logs.types import Timeline
from ..probes.context import ProbeContext
from ..review.types import ReviewFinding
from ..session import Session
from ..snapshot import Snapshot, plain_snapshot
from ..system.files import write_new_file
from ..system.paths import relative_to_cwd
from ..triage.types import JobReport
from .apply import AppliedFix, apply_fix, undo_fix
from .build import FixContext, build_fixes
from .proof import Progress, ProofResult, is_proved_by_probe, prove_job, prove_probe
from .state_before import wrong_before
from .types import Fix

PROOF_LIMIT_S = 60.0


class FixFlow:
    """The fixes of one cause in one case. ``report``: the job in which the cause was found, if any.

    ``job`` is a running job of the case, whatever its verdict; ``evidence`` and ``timeline`` are those of the case.
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
        evidence: Sequence[Evidence] = (),
        timeline: Timeline | None = None,
        job: JobReport | None = None,
    ) -> None:
        self.cause, self.report = cause, report
        self._evidence, self._timeline, self._job = list(evidence), timeline, report or job
        self._knowledge, self._session, self._snapshot = knowledge, session, snapshot
        self._findings = list(findings)

    def build(self) -> list[Fix]:
        """Return the fixes for this case, those first that fit what was seen. Reads scripts, writes nothing."""
        script = script_of_verdict(self.report)
        context = FixContext(
            snapshot=self._snapshot,
            script=str(script) if script else None,
            report=self._job,
            findings=self._findings or review_job_script(self.report, self._knowledge),
            evidence=self._evidence,
            timeline=self._timeline,
        )
        return build_fixes(self.cause, context, self._knowledge)

    @property
    def directory(self) -> Path:
        """Directory for new files: that of the job, or else the working directory."""
        processes = self.report.job.processes if self.report else []
        return Path(processes[0].cwd) if processes and processes[0].cwd else Path.cwd()

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

    def proof_text(self, fix: Fix) -> str:
        """Describe how the fix can be proved, or "" if only a new run of the user can show it."""
        if self._is_proved_by_job(fix):
            return "the same command line on a patched copy, on a free port; passed when every rank gets past the line"
        if not is_proved_by_probe(self.cause, self._knowledge):
            return ""
        return f"{self._knowledge.probes[self.cause.verify.probe].title} again"

    async def prove(
        self,
        fix: Fix,
        context: ProbeContext,
        granted: Intrusiveness,
        *,
        limit_s: float = PROOF_LIMIT_S,
        progress: Progress | None = None,
    ) -> ProofResult:
        """Run the check that failed again: the job on a patched copy, or the probe of the cause.

        Raises:
            UserError: As ``prove_job`` and ``prove_probe``.
        """
        if self.report and self._is_proved_by_job(fix):
            proof = await prove_job(self.report, fix, limit_s=limit_s, progress=progress)
        else:
            before = wrong_before(self.cause.verify, self._session)
            proof, snapshot = await prove_probe(self.cause, before, context, self._knowledge, granted)
            self._session.append("snapshot", **plain_snapshot(snapshot))  # the state before, for the next proof
        self._session.append(
            "proof", passed=proof.passed, outcome=proof.outcome, what=proof.what, detail=proof.detail,
            before=proof.before, after=proof.after, diff=fix.diff() if proof.passed else "",
        )  # fmt: skip
        return proof

    def record(self, fix: Fix, action: str, paths: Sequence[str] = (), backup: str = "") -> None:
        """Append the event of an action on a fix; an applied fix is kept with its diff."""
        diff = fix.diff() if action.startswith("applied") else ""
        self._session.append(
            "fix", id=fix.id, cause=fix.cause, title=fix.title, action=action, paths=list(paths), diff=diff,
            backup=backup,
        )  # fmt: skip

    def _is_proved_by_job(self, fix: Fix) -> bool:
        return self.report is not None and bool(fix.patches)
