"""The wizard as numbered questions, for where there is no terminal, or one that cannot show a screen.

The same state, case and session as the screens: a session begun here can be taken up there.
"""

import asyncio
import os
import sys
from itertools import islice
from typing import Any

from ...app.diagnosis.case import FRONT_DOOR
from ...app.errors import UserError
from ...app.options import Options
from ...app.probes import summary
from ...app.session import Session, all_sessions
from ...app.snapshot import Snapshot, snapshot_from_plain
from ...app.triage.phrases import JOB_STATE_TEXT
from ..shell.state import WizardState, is_navigation_event, job_name
from ..shell.take_text import take_text
from .interview import Interview
from .prompt import PASTE_END, EndOfInput, Prompt, Quit

# What is wrong, as on Home: the words of the list, the answer to the question "symptom".
SYMPTOMS = [
    ("My job hangs", "hangs"),
    ("It crashed; I have an error or a log", "crashes"),
    ("It runs, but wrong or too slow", "wrong-or-slow"),
    ("It does not even start", "does-not-start"),
]


def run_plain(screen: str, options: Options, arguments: dict[str, Any]) -> int:
    """The wizard from a screen (home, demo, paste, resume) to its end; the exit code.

    Raises:
        UserError: A session to resume is not there, or what was asked for cannot be done.
    """
    prompt = Prompt(options.ascii or not (sys.stdout.encoding or "").lower().startswith("utf"))
    wizard = PlainWizard(WizardState(options), prompt)
    try:
        if screen == "demo":
            from .job import run_demo

            return run_demo(wizard.state, prompt)
        wizard.begin(screen, arguments)
    except EndOfInput:
        prompt.write()
    except KeyboardInterrupt:
        prompt.write()
        wizard.farewell()
        return 130
    except BrokenPipeError:  # nobody reads on: so be it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    wizard.farewell()
    return 0


class PlainWizard:
    """One prompt with a person."""

    def __init__(self, state: WizardState, prompt: Prompt) -> None:
        self.state = state
        self.prompt = prompt
        self.interview = Interview(state, prompt)

    def begin(self, screen: str, arguments: dict[str, Any]) -> None:
        """Start at a screen; afterwards there is Home, until the person leaves."""
        try:
            if screen == "resume":
                self._resume(str(arguments.get("id", "last")))
            elif screen == "paste":
                self._paste()
            else:
                self._look_at_box()
        except Quit as leave:
            if not leave.home:
                return
        while True:
            try:
                self._home()
            except Quit as leave:
                if not leave.home:
                    return
            except UserError as error:
                self.prompt.write(f"{error.message} → {error.next_step}" if error.next_step else error.message)

    def farewell(self) -> None:
        """Say where what was found is kept."""
        session = self.state.case.session if self.state.has_case else None
        if self.state.proved:
            self.state.close()
        elif session:
            self.prompt.show_progress(f"session {session.id} is kept: ddpwizard sessions resume {session.id}")

    # -- Home

    def _look_at_box(self) -> None:
        self.prompt.show_progress("looking at this box")

        async def everything() -> None:
            found, reports = await asyncio.gather(
                self.state.run_probes(self.state.may_probe("reads"), self.state.context(), "reads"), self._jobs()
            )
            self.state.merge_snapshot(found)
            self.state.reports = reports

        asyncio.run(everything())

    async def _jobs(self) -> list[Any]:
        try:
            return await self.state.triage(None)
        except UserError as error:
            self.prompt.show_progress(f"jobs: {error}")
            return []

    def _home(self) -> None:
        """The box at a glance, and what is wrong."""
        if self.state.snapshot is None:
            self._look_at_box()
        self._show_box()
        unfinished = next((session for session in islice(all_sessions(), 1) if _worth_resuming(session)), None)
        places = [
            ("Check this box: everything that was looked at", self._check),
            ("Search what is known", self._search),
            ("DDP, FSDP or ZeRO: plan a run", self._plan),
        ]
        rows = [label + (self._hung_note() if answer == "hangs" else "") for label, answer in SYMPTOMS]
        rows += [label for label, _ in places]
        rows += [f"Go on with session {unfinished.id}"] if unfinished else []
        self.prompt.write("", "What is wrong?")
        given = self.prompt.choose(rows, {"q": "quit"}, "A number, or tell me what you see: ", words=True)
        if given == "q":
            raise Quit
        if not given.isdecimal():
            self.state.begin()
            take_text(self.state, given, "your words")
            self.interview.diagnose()
        elif int(given) <= len(SYMPTOMS):
            self._symptom(SYMPTOMS[int(given) - 1][1])
        elif int(given) <= len(SYMPTOMS) + len(places):
            places[int(given) - len(SYMPTOMS) - 1][1]()
        elif unfinished:
            self._resume(unfinished.id)

    def _show_box(self) -> None:
        snapshot = self.state.snapshot
        assert snapshot is not None
        self.prompt.write("", f"This box: {snapshot.host}")
        for fact in summary.machine_summary(snapshot, self.state.checks):
            problem = f"   {self.prompt.status_sign(fact.status)} {fact.problem}" if fact.status else ""
            self.prompt.write(f"  {fact.name:<8} {fact.text}{problem}")
        if not self.state.reports:
            self.prompt.write("  job      none of yours runs here")
        for report in self.state.reports or []:
            _, state_text = JOB_STATE_TEXT[report.verdict.state]
            self.prompt.write(f"  job      {job_name(report.job)}, {report.world_size} ranks: {state_text}")

    def _hung_note(self) -> str:
        hung = [report for report in self.state.reports or [] if report.verdict.state == "hung"]
        return f"   ({job_name(hung[0].job)} on this box looks hung)" if hung else ""

    def _symptom(self, answer: str) -> None:
        self.state.begin().answer(FRONT_DOOR, answer)
        if answer == "crashes":
            self._paste()
        elif answer == "hangs" and self.state.reports:
            from .job import show_triage

            show_triage(self.state, self.prompt)
            self.interview.diagnose()
        else:
            self.interview.ask()

    def _check(self) -> None:
        """What the judges say, the bad first."""
        good = [check for check in self.state.checks if check.status not in summary.STATUS_SEVERITY]
        self.prompt.write("")
        for status in summary.STATUS_SEVERITY:
            for check in (check for check in self.state.checks if check.status == status):
                self.prompt.write(
                    f"  {self.prompt.status_sign(status)} {check.title}" + (f" [{check.where}]" if check.where else "")
                )
                self.prompt.write(*(f"      {text}" for text in (check.detail, check.fix and f"→ {check.fix}") if text))
        self.prompt.write(
            f"  {self.prompt.status_sign('ok')} {len(good)} more in order", *(f"      {c.title}" for c in good)
        )

    def _search(self) -> None:
        from ...app.diagnosis.cause_text import cause_lines, matching_causes

        found = matching_causes(self.state.knowledge, self.prompt.ask("Search for: "))
        if not found:
            self.prompt.write("  Nothing known has these words.")
            return
        given = self.prompt.choose([cause.title for cause in found], {"h": "home"}, "Which one? ")
        if given != "h":
            self.prompt.write("", *cause_lines(found[int(given) - 1], self.state.knowledge))

    def _plan(self) -> None:
        from .planner import plan_run

        plan_run(self.state, self.prompt)

    # -- the case

    def _resume(self, id_: str) -> None:
        screen = self.state.resume(id_)
        session = self.state.case.session
        assert session is not None
        self.state.snapshot = _last_snapshot(session)
        self.prompt.write(f"Session {session.id}, {len(self.state.case.answers)} answers so far.")
        for question, answer in self.state.case.answers.items():
            spec = self.state.knowledge.questions.get(question)
            if spec and answer in spec.answers:
                self.prompt.write(f"  {spec.ask} {spec.answers[answer]}")
        step = next((event for event in reversed(session.events) if is_navigation_event(event)), None)
        question = str(step.data.get("detail", "")) if step and screen == "step" else ""
        if screen == "paste":
            self._paste()
        elif screen == "step" or (screen == "home" and self.state.case.answers):
            self.interview.ask(question if question not in self.state.case.answers else "")
        else:
            self.interview.diagnose()

    def _paste(self) -> None:
        self.state.record_navigation("paste")
        self.prompt.write("", f"Paste the error or the log, or give its path. A line with only {PASTE_END!r} ends it.")
        text = self.prompt.paste()
        try:
            take_text(self.state, text, "the pasted text")
        except UserError as error:
            self.prompt.write(f"{error.message} → {error.next_step}" if error.next_step else error.message)
            self._paste()
            return
        self.interview.diagnose()


def _worth_resuming(session: Session) -> bool:
    return session.last("closed") is None and any(is_navigation_event(event) for event in session.events)


def _last_snapshot(session: Session) -> Snapshot | None:

    last = session.last("snapshot")
    return snapshot_from_plain(last.data) if last else None
