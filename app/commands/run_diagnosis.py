"""The diagnoses of one ``ddpwizard run``: the running job as ``triage`` does, a crash as ``diagnose`` does, both as one
session. A verdict that was found is returned whatever fails after it: knowledge, session, report file, hook."""

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ... import __version__
from ...knowledge.schema import Cause, Knowledge
from ..errors import UserError
from ..options import Options, left_out_lines
from ..system.waiting import wait_for
from ..watchdog import notify
from ..watchdog.ended_ranks import EndedRank
from ..watchdog.watchdog import TROUBLE, Report, WriteText

if TYPE_CHECKING:
    from ..diagnosis.case import Case
    from ..logs.types import Timeline
    from ..triage.types import JobReport, Verdict

LIMIT_S = 60.0
SHOWN_CAUSES = 3
T = TypeVar("T")


class RunDiagnosis:
    """Diagnosis of the job of one run."""

    def __init__(
        self,
        command: Sequence[str],
        private: Path,
        options: Options,
        stops: bool,
        report_file: Path | None,
        on_hang: Sequence[str],
        write: WriteText,
    ) -> None:
        self.command = list(command)
        self.private, self.options, self.stops = private, options, stops
        self.report_file, self.on_hang = report_file, list(on_hang)
        self.knowledge = _load_knowledge(options, write)
        self.case: Case | None = None
        self.recorded: Verdict | None = None  # the verdict in the session
        self.problems: list[str] = []
        self.failure = ""  # of the running job, in the words of its last verdict

    def diagnose_job(self, pid: int, why: str) -> Report:
        """Inspect the running job of ``pid``, write the report and run the hook."""
        from ..triage.triage import triage_jobs

        try:
            triage = triage_jobs(pid=pid, allow=self.options.allow or "reads")
            reports = asyncio.run(wait_for(LIMIT_S, triage))
        except UserError as error:
            return Report("unknown", [str(error)])
        except asyncio.TimeoutError:
            return Report("unknown", [f"the diagnosis took more than {LIMIT_S:.0f} s and was cancelled"])
        self.problems = []
        reports = self._attempt("the review of the script", lambda: self._explained(reports), reports)
        lines = self._attempt("the text of the verdict", lambda: self._lines(reports), [r.verdict.why for r in reports])
        state = reports[0].verdict.state if reports else "unknown"
        self.failure = reports[0].verdict.why if state in TROUBLE else ""
        if state in TROUBLE:
            self._attempt("the session", lambda: self._record_job(reports, pid), None)
            lines += self._best_cause_lines()
        lines += self._next_commands(pid)
        notes = self._attempt("the report", lambda: self._deliver_report(why, reports, lines), [])
        return Report(state, [*lines, *notes, *self.problems])

    def diagnose_crash(self, ended: Sequence[EndedRank], first: EndedRank) -> list[str]:
        """Return the diagnosis of a job that has ended with an error; write the report."""
        from ..watchdog import crash

        self.problems = []
        case = self._open_case()
        lines = self._attempt(
            "the diagnosis",
            lambda: crash.diagnose_crash(case, self.private, ended, first, self._fix_lines, self._script()),
            [],
        )
        self._attempt("the session", lambda: self._record_step("diagnosis"), None)
        lines += self._next_commands(None)
        why = f"{first.name} {first.end}: {first.reason}"
        notes = self._attempt("the report", lambda: self._report_crash(case, why, lines), [])
        return [*lines, *notes, *self.problems]

    def shows_lost_rank(self, error: str) -> bool:
        """Return whether an error shows only that another rank is gone or does not answer."""
        messages = self.knowledge.messages.values()
        return any(each.lost_rank and re.search(each.pattern, error) for each in messages)

    def _script(self) -> str:
        """Return the path of the script that was started, or ""."""
        from ..fixes.facts import CaseFacts, FixContext

        return next(iter(CaseFacts(FixContext(launch=self.command)).target), "")

    def record_end(self) -> None:
        """Record that the job has ended: a resumed session begins with the diagnosis, not with the ranks."""
        if self.recorded:
            self._attempt("the session", lambda: self._record_step("diagnosis"), None)

    def _attempt(self, subject: str, step: Callable[[], T], default: T) -> T:
        """Take a step after the verdict; a failure of it is only reported."""
        try:
            return step()
        except UserError as error:
            self.problems.append(f"{subject}: {error}")
        except Exception as error:
            self.problems.append(f"{subject} failed: {type(error).__name__}: {error}")
        return default

    def _fix_lines(self, cause: Cause, timeline: "Timeline | None") -> list[str]:
        """Return the first fix of a cause with its commands, for the job that was started."""
        from ..fixes.build import build_fixes
        from ..fixes.facts import FixContext

        evidence = self.case.evidence if self.case else []
        context = FixContext(evidence=evidence, timeline=timeline, launch=self.command)
        fixes = build_fixes(cause, context, self.knowledge)[:1]
        return [
            line for fix in fixes for line in (f"    Fix: {fix.title}", *(f"      {each}" for each in fix.commands))
        ]

    def _explained(self, reports: "list[JobReport]") -> "list[JobReport]":
        from ..diagnosis.reviewed_job import explain_by_review

        return [explain_by_review(each, self.knowledge) for each in reports]

    def _lines(self, reports: Sequence["JobReport"]) -> list[str]:
        from .triage import report_lines

        return [line for report in reports for line in report_lines(report, self.knowledge)]

    def _open_case(self) -> "Case":
        """Return the case of this run; without a session if none can be written."""
        from ..diagnosis.case import Case
        from ..session import Session

        if self.case is None:
            session = self._attempt(
                "the session",
                lambda: Session.new(argv=sys.argv[1:], version=__version__, cwd=str(Path.cwd()), command=self.command),
                None,
            )
            self.case = Case(self.knowledge, session)
        return self.case

    def _record_job(self, reports: Sequence["JobReport"], pid: int) -> None:
        """Record a verdict in the session, unless it is the one that is recorded."""
        from ..diagnosis.job_evidence import add_review, add_triage, review_job_script

        if reports[0].verdict == self.recorded:
            return
        case = self._open_case()
        add_triage(case, reports)
        add_review(case, review_job_script(reports[0], self.knowledge))
        self.recorded = reports[0].verdict
        self._record_step("triage", str(pid))

    def _record_step(self, screen: str, detail: str = "") -> None:
        """Record the ranking, and the screen on which Home and ``sessions resume`` open this case."""
        if self.case and self.case.session:
            found = self.case.diagnosis()
            causes = [[cause.id, cause.confidence] for cause in found.named(SHOWN_CAUSES)]
            self.case.session.append("diagnosis", causes=causes, other=found.other)
            self.case.session.append("step", screen=screen, detail=detail)

    def _best_cause_lines(self) -> list[str]:
        """Return the first cause as the session ranks it: by the verdict and the review of the script."""
        from ..diagnosis.dialogue import best_cause_text

        return [f"  {best_cause_text(cause)}." for cause in self.case.diagnosis().named(1)] if self.case else []

    def _next_commands(self, pid: int | None) -> list[str]:
        """Return the commands that open the case: the living job, and the session."""
        lines = [f"  ddpwizard triage --pid {pid} inspects the job again."] if pid and not self.stops else []
        session = self.case.session if self.case else None
        opens = "opens this case in the wizard, with its fixes"
        return lines + ([f"  ddpwizard sessions resume {session.id} {opens}."] if session else [])

    def _deliver_report(self, why: str, reports: Sequence["JobReport"], lines: Sequence[str]) -> list[str]:
        """Write the report file and run the user's command. Return messages."""
        from ..text.json_output import json_bytes, public_document
        from .triage import report_as_json

        body = {"why": why, "jobs": [report_as_json(each, self.knowledge) for each in reports]}
        document = json_bytes(public_document("triage", self.knowledge, body))
        notes = [notify.write_report(self.report_file, document, [why, "", *lines])] if self.report_file else []
        problem = notify.run_hook(self.on_hang, document) if self.on_hang else ""
        return [*notes, problem] if problem else notes

    def _report_crash(self, case: "Case", why: str, lines: Sequence[str]) -> list[str]:
        from ..text.json_output import json_bytes, public_document

        if not self.report_file:
            return []
        body = msgspec.to_builtins(case.diagnosis()) | {"why": why}
        document = json_bytes(public_document("diagnosis", self.knowledge, body))
        return [notify.write_report(self.report_file, document, [why, "", *lines])]


def _load_knowledge(options: Options, write: WriteText) -> Knowledge:
    """Return the knowledge base, or if that fails for any other reason than a wrong option, the built-in entries."""
    from ...knowledge.loader import read_knowledge
    from ..knowledge_cache import load_knowledge

    try:
        knowledge = load_knowledge(*options.knowledge)
    except Exception as error:
        if not all(directory.is_dir() for directory in options.knowledge):
            raise
        write(f"only the built-in knowledge is used: {type(error).__name__}: {error}")
        knowledge = read_knowledge()
    for line in left_out_lines(knowledge):
        write(line)
    return knowledge
