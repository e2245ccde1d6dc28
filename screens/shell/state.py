"""State that the full screen and plain mode share: options, knowledge, the case with its session, the last snapshot.

It holds no widget. The functions that inspect the machine can be replaced, so that a recorded machine can be shown.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ... import __version__
from ...app.errors import UserError
from ...app.evidence import Check, Diagnosis, RankedCause
from ...app.logs.types import Timeline
from ...app.options import Options, knowledge_for, left_out_lines, target_python
from ...app.probes.context import ProbeContext
from ...app.snapshot import Snapshot, plain_snapshot
from ...app.triage.types import JobReport
from ...knowledge.schema import Intrusiveness, Knowledge

if TYPE_CHECKING:
    from ...app.diagnosis.case import Case
    from ...app.fixes.flow import FixFlow
    from ...app.labs.course import Course
    from ...app.labs.lab_session import LabSession
    from ...app.plan.model_source import ModelSource
    from ...app.review.types import ReviewFinding
    from ...app.session import Session, SessionEvent
    from ...app.triage.job_history import JobHistory
    from .proof_run import ProofRun

ProbeRunner = Callable[[list[str], ProbeContext, Intrusiveness], Awaitable[Snapshot]]
TriageRunner = Callable[[int | None], Awaitable[list[JobReport]]]
FixKey = tuple[str, str, str, str]  # session, job, cause and fix: a fix of another case is another one
PROBES_WITH_OWN_SCREEN = ("job", "review")  # probes with a screen of their own


class WizardState:
    """One run of the wizard."""

    def __init__(
        self, options: Options, *, run_probes: ProbeRunner | None = None, triage: TriageRunner | None = None
    ) -> None:
        self.options = options
        self.run_probes = run_probes or self._run_probes
        self._sample_jobs = triage or self._triage
        self.snapshot: Snapshot | None = None
        self.checks: list[Check] = []
        self.reports: list[JobReport] | None = None  # None: not sampled yet
        self.other_jobs: list[str] = []  # a line for each other user whose jobs run here
        self.texts: dict[str, str] = {}  # origin -> text that was pasted, to show lines of it
        self.in_scope = True
        self.reads_values = False  # True once the user has allowed reading values of variables
        self.timeline: Timeline | None = None  # of the logs of the case
        self.plan_form: dict[str, str] = {}  # fields of the form of the planner, to restore them
        self.plan_built: dict[str, ModelSource | UserError] = {}  # results of importing factory functions of the user
        self.proof_runs: dict[FixKey, ProofRun] = {}
        self.applied_fixes: dict[FixKey, str] = {}  # the ids of the applied ones, to undo them
        self.lab_sessions: dict[str, LabSession] = {}  # by lab
        self._case: Case | None = None
        self._recorded_jobs: dict[str, JobReport | None] = {}  # by cause, of the session that was resumed
        self._history: JobHistory | None = None

    @cached_property
    def knowledge(self) -> Knowledge:
        """The knowledge base, loaded at first use (after the first frame)."""
        return knowledge_for(self.options, warn=False)

    @cached_property
    def course(self) -> "Course":
        """The chapters and labs, read at first use."""
        from ...app.labs.course import load_course

        return load_course(self.options)

    @property
    def warnings(self) -> list[str]:
        """A line for each entry of a team that is invalid and left out, and for a case that cannot be saved."""
        return [*filter(None, [self.unsaved]), *left_out_lines(self.knowledge)]

    @property
    def unsaved(self) -> str:
        """The reason why the session of the case cannot be written, or ""."""
        return self._case.session.problem if self._case and self._case.session else ""

    @property
    def granted(self) -> Intrusiveness:
        """Level up to which probes may run: as given, else ``allocates`` if no job of anyone runs, else ``reads``."""
        is_free = self.reports == [] and not self.other_jobs
        return self.options.allow or ("allocates" if is_free else "reads")

    # -- the case

    @property
    def case(self) -> "Case":
        """The current case; the first use begins one with its session."""
        if self._case is None:
            self.begin()
        assert self._case is not None
        return self._case

    @property
    def has_case(self) -> bool:
        return self._case is not None

    def begin(self) -> "Case":
        """Begin a new case that contains the last snapshot."""
        from ...app.diagnosis.case import Case
        from ...app.session import Session

        session = Session.new(goes_on=True, argv=sys.argv[1:], version=__version__, cwd=str(Path.cwd()))
        self._case = Case(self.knowledge, session)
        self.in_scope, self.timeline, self._recorded_jobs = True, None, {}
        if self.snapshot:
            self.take_snapshot(self.snapshot)
        return self._case

    @property
    def launch_command(self) -> list[str]:
        """The command line that started the job of the case, or []."""
        return next((each.job.launcher_command for each in self.reports or [] if each.job.id == self.case.job), [])

    def recent_logs(self) -> list[Path]:
        """Return the logs that the ranks of this machine's jobs write, and recent ones of the current directory."""
        from ...app.logs.recent import recent_logs

        seen = [seen.output_from for report in self.reports or [] for seen in report.observed.seen]
        return recent_logs(seen, Path.cwd())

    def resume(self, id_: str) -> tuple[str, dict[str, str]]:
        """Resume the session with this id, and return the name of its last screen with its arguments.

        Raises:
            UserError: There is no such session.
        """
        from ...app.diagnosis.case import Case
        from ...app.session import Session

        session = Session.load(id_)
        session.goes_on = True
        self._case = Case(self.knowledge, session)
        self._recorded_jobs = {}
        self.timeline = last_timeline(session)
        step = last_step(session)
        if step.get("screen") != "fix":
            return step.get("screen", "step"), {}
        cause = step.get("detail", "")
        return ("fix", {"cause": cause}) if cause in self.knowledge.causes else ("diagnosis", {})

    def record_navigation(self, screen: str, detail: str = "") -> None:
        """Record the screen in the session, to resume there."""
        assert self.case.session is not None
        last = next((e for e in reversed(self.case.session.events) if is_navigation_event(e)), None)
        if last is None or last.data != {"screen": screen, "detail": detail}:
            self.case.session.append("step", screen=screen, detail=detail)

    def record_event(self, kind: str, **data: object) -> None:
        """Append an event to the session of the case."""
        assert self.case.session is not None
        self.case.session.append(kind, **data)  # type: ignore[arg-type]

    def record_diagnosis(self, diagnosis: Diagnosis, shown: Sequence[RankedCause]) -> None:
        """Append the ranking to the session, with the causes that were shown."""
        causes = [[cause.id, cause.confidence] for cause in shown]
        self.record_event("diagnosis", causes=causes, other=diagnosis.other)

    @property
    def proved(self) -> bool:
        """True if a fix was proved in this case."""
        from ...app.session import proof_outcome

        session = self._case.session if self._case else None
        events = session.events if session else []
        return any(event.kind == "proof" and proof_outcome(event) == "proved" for event in events)

    def has_ended(self, report: JobReport) -> bool:
        """Return whether the job of a report has ended since."""
        from ...app.jobs.control import has_ended

        return has_ended(report.job)

    def jobs_for_fix(self, cause: str, finding: "ReviewFinding | None" = None) -> list[JobReport]:
        """Return the sampled jobs that a fix of a cause may be for; of several the user has to choose one.

        The fix of a finding is only for jobs that run its file.
        """
        from ...app.diagnosis.job_of_case import CaseFiles, jobs_for_fix, jobs_of_file

        if finding:
            return jobs_of_file(self.reports or [], finding.path)
        scripts = [self.case.script] if self.case.script else []
        files = CaseFiles(logs_of_session(self.case.session), scripts, self.timeline)
        return jobs_for_fix(cause, self.reports or [], self.case.job, files)

    def fix_flow(
        self,
        cause: str,
        report: JobReport | None = None,
        findings: "Sequence[ReviewFinding]" = (),
        finding: "ReviewFinding | None" = None,
    ) -> "FixFlow":
        """Return the fixes of a cause for one job and no other: ``report``, else the one that the session recorded.

        Of a job that is not the one of the case, the evidence of the case tells nothing but the machine.
        """
        from ...app.diagnosis.job_evidence import recorded_job
        from ...app.fixes.flow import FixFlow

        case = self.case
        assert case.session is not None
        if report is None and cause not in self._recorded_jobs:
            self._recorded_jobs[cause] = recorded_job(case.session, cause)
        is_other = report is not None and bool(case.job) and report.job.id != case.job
        return FixFlow(
            self.knowledge.causes[cause],
            self.knowledge,
            case.session,
            snapshot=self.snapshot,
            report=report if report and report.verdict.cause == cause else None,
            findings=findings,
            finding=finding,
            evidence=[item for item in case.evidence if item.source == "probe"] if is_other else case.evidence,
            timeline=None if is_other else self.timeline,
            job=report or self._recorded_jobs.get(cause),
            granted=self.granted,
        )

    def resume_hint(self) -> str:
        """Return how to continue the case that is left, or why it could not be saved; "" without an open case."""
        session = self._case.session if self._case else None
        if session is None or session.last("closed"):
            return ""
        return (
            session.problem
            or f"session {session.id} is kept; to continue it:\n  ddpwizard sessions resume {session.id}"
        )

    def close(self) -> None:
        """Mark the session as done, so that it is not offered again."""
        if self._case and self._case.session:
            self._case.session.append("closed")

    def diagnosis(self) -> Diagnosis:
        """Return the diagnosis of the case with the possible next steps."""
        return self.case.diagnosis(in_scope=self.in_scope, may_probe=self.may_probe())

    # -- the machine

    def may_probe(self, granted: Intrusiveness | None = None) -> list[str]:
        """Return the probes that may run at a level without being asked for (default: ``granted``)."""
        from ...app.probes.run_probes import permitted_probes

        return [
            probe
            for probe in permitted_probes(self.knowledge, granted or self.granted)
            if probe not in PROBES_WITH_OWN_SCREEN
        ]

    def context(self, progress: Callable[[str], None] | None = None) -> ProbeContext:
        """Return the context for probes."""
        context = ProbeContext(python=target_python(self.options), environ=dict(os.environ))
        if progress:
            context.progress = progress
        return context

    def merge_snapshot(self, found: Snapshot) -> None:
        """Merge a snapshot into the last one and update the checks."""
        from ...app.probes.run_probes import judge_snapshot, merge_snapshots

        self.snapshot = merge_snapshots(self.snapshot, found) if self.snapshot else found
        self.checks = judge_snapshot(self.snapshot)

    def add_snapshot(self, found: Snapshot) -> None:
        """Merge a snapshot, and take it into the case if there is one."""
        self.merge_snapshot(found)
        if self._case:
            self.take_snapshot(found)

    def take_snapshot(self, found: Snapshot) -> None:
        """Take a snapshot into the case: as evidence, and as an event of the session."""
        from ...app.probes.run_probes import judge_snapshot

        self.record_event("snapshot", **plain_snapshot(found))
        self.case.add(item for check in judge_snapshot(found) if (item := check.evidence()))
        for probe in probes_of_snapshot(found):
            self.case.mark_probed(probe)

    async def triage(self, pid: int | None) -> list[JobReport]:
        """Sample the job of ``pid``, or all jobs; what earlier samples of this run showed is kept.

        Raises:
            UserError: As ``triage_jobs``.
        """
        from ...app.triage.job_history import JobHistory

        reports = await self._sample_jobs(pid)
        self._history = self._history or JobHistory()
        return await asyncio.to_thread(self._history.extend, reports, of_all_jobs=pid is None)

    async def _run_probes(self, probes: list[str], context: ProbeContext, granted: Intrusiveness) -> Snapshot:
        from ...app.probes.run_probes import run_probes

        return await run_probes(probes, context, self.knowledge, granted=granted)

    async def _triage(self, pid: int | None) -> list[JobReport]:
        from ...app.fixes.watch_relaunch import is_relaunched
        from ...app.jobs.other_processes import jobs_of_other_users
        from ...app.system.procfs import all_processes
        from ...app.triage.triage import triage_jobs

        self.other_jobs = await asyncio.to_thread(lambda: jobs_of_other_users(all_processes()))
        reports = await triage_jobs(pid=pid, allow=self.options.allow or "reads")
        return [report for report in reports if not is_relaunched(report.job)]


def probes_of_snapshot(snapshot: Snapshot) -> list[str]:
    """Return the probes that have run for a snapshot, failed ones included."""
    head = ("schema", "taken_at", "host", "ddpwizard_version", "failed")
    names = [name for name in snapshot.__struct_fields__ if name not in head and getattr(snapshot, name) is not None]
    return [*names, *snapshot.failed]


def logs_of_session(session: "Session | None") -> list[str]:
    """Return the origins of the logs that a session has read, descriptions apart."""
    rows = [event.data for event in session.events if event.kind == "text"] if session else []
    return [row["origin"] for row in rows if row["origin"].startswith("/") or not row["words"]]


def is_navigation_event(event: "SessionEvent") -> bool:
    """Return whether an event records a screen."""
    return event.kind == "step" and "screen" in event.data


def unfinished_session() -> "Session | None":
    """Return the newest session if the user got somewhere in it and did not end it."""
    from ...app.session import all_sessions

    newest = next(all_sessions(), None)
    if newest is None or newest.last("closed") or not any(is_navigation_event(event) for event in newest.events):
        return None
    return newest


def last_step(session: "Session") -> dict[str, str]:
    """Return the screen that a session was left at, with its detail; empty if it records none."""
    return next((e.data for e in reversed(session.events) if is_navigation_event(e)), {})


def last_timeline(session: "Session") -> Timeline | None:
    """Return the timeline of the logs last read in a session, or None."""
    event = session.last("timeline")
    return msgspec.convert(event.data, Timeline) if event else None
