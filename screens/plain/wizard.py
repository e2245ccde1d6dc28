"""The wizard as numbered questions, for where there is no terminal, or one that cannot show a screen.

The same desk, case and session as the screens: a session begun here can be taken up there.
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
    talk = Prompt(options.ascii or not (sys.stdout.encoding or "").lower().startswith("utf"))
    wizard = PlainWizard(WizardState(options), talk)
    try:
        if screen == "demo":
            from .job import run_demo

            return run_demo(wizard.desk, talk)
        wizard.begin(screen, arguments)
    except EndOfInput:
        talk.say()
    except KeyboardInterrupt:
        talk.say()
        wizard.farewell()
        return 130
    except BrokenPipeError:  # nobody reads on: so be it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    wizard.farewell()
    return 0


class PlainWizard:
    """One talk with a person."""

    def __init__(self, desk: WizardState, talk: Prompt) -> None:
        self.desk = desk
        self.talk = talk
        self.interview = Interview(desk, talk)

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
                self.talk.say(f"{error.message} → {error.next_step}" if error.next_step else error.message)

    def farewell(self) -> None:
        """Say where what was found is kept."""
        session = self.desk.case.session if self.desk.has_case else None
        if self.desk.proved:
            self.desk.close()
        elif session:
            self.talk.tell(f"session {session.id} is kept: ddpwizard sessions resume {session.id}")

    # -- Home

    def _look_at_box(self) -> None:
        self.talk.tell("looking at this box")

        async def everything() -> None:
            found, reports = await asyncio.gather(
                self.desk.look(self.desk.may_probe("reads"), self.desk.context(), "reads"), self._jobs()
            )
            self.desk.merge_look(found)
            self.desk.reports = reports

        asyncio.run(everything())

    async def _jobs(self) -> list[Any]:
        try:
            return await self.desk.triage(None)
        except UserError as error:
            self.talk.tell(f"jobs: {error}")
            return []

    def _home(self) -> None:
        """The box at a glance, and what is wrong."""
        if self.desk.snapshot is None:
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
        self.talk.say("", "What is wrong?")
        given = self.talk.choose(rows, {"q": "quit"}, "A number, or tell me what you see: ", words=True)
        if given == "q":
            raise Quit
        if not given.isdecimal():
            self.desk.begin()
            take_text(self.desk, given, "your words")
            self.interview.diagnose()
        elif int(given) <= len(SYMPTOMS):
            self._symptom(SYMPTOMS[int(given) - 1][1])
        elif int(given) <= len(SYMPTOMS) + len(places):
            places[int(given) - len(SYMPTOMS) - 1][1]()
        elif unfinished:
            self._resume(unfinished.id)

    def _show_box(self) -> None:
        snapshot = self.desk.snapshot
        assert snapshot is not None
        self.talk.say("", f"This box: {snapshot.host}")
        for fact in summary.machine_summary(snapshot, self.desk.checks):
            problem = f"   {self.talk.mark(fact.status)} {fact.problem}" if fact.status else ""
            self.talk.say(f"  {fact.name:<8} {fact.text}{problem}")
        if not self.desk.reports:
            self.talk.say("  job      none of yours runs here")
        for report in self.desk.reports or []:
            _, state = JOB_STATE_TEXT[report.verdict.state]
            self.talk.say(f"  job      {job_name(report.job)}, {report.world_size} ranks: {state}")

    def _hung_note(self) -> str:
        hung = [report for report in self.desk.reports or [] if report.verdict.state == "hung"]
        return f"   ({job_name(hung[0].job)} on this box looks hung)" if hung else ""

    def _symptom(self, answer: str) -> None:
        self.desk.begin().answer(FRONT_DOOR, answer)
        if answer == "crashes":
            self._paste()
        elif answer == "hangs" and self.desk.reports:
            from .job import show_triage

            show_triage(self.desk, self.talk)
            self.interview.diagnose()
        else:
            self.interview.ask()

    def _check(self) -> None:
        """What the judges say, the bad first."""
        good = [check for check in self.desk.checks if check.status not in summary.STATUS_SEVERITY]
        self.talk.say("")
        for status in summary.STATUS_SEVERITY:
            for check in (check for check in self.desk.checks if check.status == status):
                self.talk.say(
                    f"  {self.talk.mark(status)} {check.title}" + (f" [{check.where}]" if check.where else "")
                )
                self.talk.say(*(f"      {text}" for text in (check.detail, check.fix and f"→ {check.fix}") if text))
        self.talk.say(f"  {self.talk.mark('ok')} {len(good)} more in order", *(f"      {c.title}" for c in good))

    def _search(self) -> None:
        from ...app.commands.explain import cause_lines

        words = self.talk.ask("Search for: ").lower().split()
        causes = self.desk.knowledge.causes.values()
        found = [c for c in causes if all(word in " ".join([c.id, c.title, *c.symptoms]).lower() for word in words)]
        if not found:
            self.talk.say("  Nothing known has these words.")
            return
        given = self.talk.choose([cause.title for cause in found], {"h": "home"}, "Which one? ")
        if given != "h":
            self.talk.say("", *cause_lines(found[int(given) - 1], self.desk.knowledge))

    def _plan(self) -> None:
        from .planner import plan_run

        plan_run(self.desk, self.talk)

    # -- the case

    def _resume(self, id_: str) -> None:
        screen = self.desk.resume(id_)
        session = self.desk.case.session
        assert session is not None
        self.desk.snapshot = _last_snapshot(session)
        self.talk.say(f"Session {session.id}, {len(self.desk.case.answers)} answers so far.")
        for question, answer in self.desk.case.answers.items():
            spec = self.desk.knowledge.questions.get(question)
            if spec and answer in spec.answers:
                self.talk.say(f"  {spec.ask} {spec.answers[answer]}")
        step = next((event for event in reversed(session.events) if is_navigation_event(event)), None)
        question = str(step.data.get("detail", "")) if step and screen == "step" else ""
        if screen == "paste":
            self._paste()
        elif screen == "step" or (screen == "home" and self.desk.case.answers):
            self.interview.ask(question if question not in self.desk.case.answers else "")
        else:
            self.interview.diagnose()

    def _paste(self) -> None:
        self.desk.note_step("paste")
        self.talk.say("", f"Paste the error or the log, or give its path. A line with only {PASTE_END!r} ends it.")
        text = self.talk.paste()
        try:
            take_text(self.desk, text, "the pasted text")
        except UserError as error:
            self.talk.say(f"{error.message} → {error.next_step}" if error.next_step else error.message)
            self._paste()
            return
        self.interview.diagnose()


def _worth_resuming(session: Session) -> bool:
    return session.last("closed") is None and any(is_navigation_event(event) for event in session.events)


def _last_snapshot(session: Session) -> Snapshot | None:

    last = session.last("snapshot")
    return snapshot_from_plain(last.data) if last else None
