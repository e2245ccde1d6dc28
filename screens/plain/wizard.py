"""The wizard as numbered questions, for terminals that cannot show a screen and for scripts.

It shares case and session with the screens: a session begun here can be resumed there.
"""

import sys
from typing import Any

from ...app.diagnosis.given_text import classify_given
from ...app.diagnosis.session_subject import subject_text
from ...app.diagnosis.symptoms import OF_A_RUNNING_JOB, SYMPTOMS, TASKS, WITH_LOG, Symptom
from ...app.errors import UserError
from ...app.exit_codes import ExitCode
from ...app.session import Session
from ...app.snapshot import Snapshot, snapshot_from_plain
from ...app.system.files import expand_user
from ...app.triage.job_text import hung_job_note, slow_job_note, slow_jobs_first
from ..shell.state import WizardState, is_navigation_event, unfinished_session
from ..shell.take_text import take_text
from .fix import offer_fixes
from .interview import Interview
from .machine import inspect_machine, show_checks, show_machine
from .prompt import PASTE_END, EndOfInput, Prompt, Quit
from .review import review_path


def run_plain(screen: str, state: WizardState, arguments: dict[str, Any]) -> int:
    """Run the wizard from a screen (home, demo, paste, resume) to its end, and return the exit code.

    Raises:
        UserError: A session to resume does not exist, or the task asked for cannot be done.
    """
    prompt = Prompt(state.options.ascii or not (sys.stdout.encoding or "").lower().startswith("utf"))
    wizard = PlainWizard(state, prompt)
    try:
        if screen == "demo":
            from .job import run_demo

            return run_demo(state, prompt)
        if screen == "learn":
            from .learn import run_learn

            return run_learn(state, prompt, str(arguments.get("number", "")))
        wizard.begin(screen, arguments)
    except EndOfInput:
        prompt.write()
    except KeyboardInterrupt:
        prompt.write()
        wizard.close()
        return ExitCode.INTERRUPTED
    wizard.close()
    return ExitCode.OK


class PlainWizard:
    """One run of the wizard as numbered questions."""

    def __init__(self, state: WizardState, prompt: Prompt) -> None:
        self.state = state
        self.prompt = prompt
        self.interview = Interview(state, prompt)

    def begin(self, screen: str, arguments: dict[str, Any]) -> None:
        """Start at a screen, then show Home again and again until the user leaves."""
        for warning in self.state.warnings:
            self.prompt.show_progress(warning)
        try:
            if screen == "resume":
                self._resume(str(arguments.get("id", "last")))
            elif screen == "paste":
                self._paste()
            else:
                inspect_machine(self.state, self.prompt)
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
                self._show_error(error)

    def close(self) -> None:
        """Close the session if a fix was proved; else show how to resume it."""
        if self.state.proved:
            self.state.close()
        elif resume_hint := self.state.resume_hint():
            self.prompt.show_progress(resume_hint)

    # -- Home

    def _home(self) -> None:
        """Show the machine at a glance, and ask what is wrong."""
        if self.state.snapshot is None:
            inspect_machine(self.state, self.prompt)
        show_machine(self.state, self.prompt)
        unfinished = unfinished_session()
        hung = hung_job_note(self.state.reports or [])
        slow = slow_job_note(self.state.reports or [])
        notes = {id_: f"   ({note})" for id_, note in (("hangs", hung), ("slow", slow)) if note}
        rows = [symptom.label + notes.get(symptom.id, "") for symptom in SYMPTOMS]
        rows += TASKS.values()
        rows += [", ".join(["Continue the last session", *_described(unfinished)])] if unfinished else []
        self.prompt.write("", "What is wrong?")
        given = self.prompt.choose(rows, {"q": "quit"}, "A number, or describe what you see: ", words=True)
        if given == "q":
            raise Quit
        if not given.isdecimal():
            self._read_input(given, "your words")
            return
        chosen = int(given) - 1
        tasks = {"plan": self._plan, "check": self._check, "review": self._review, "browse": self._search}
        tasks["learn"] = self._learn
        if chosen < len(SYMPTOMS):
            self._begin_case(SYMPTOMS[chosen])
        elif chosen < len(SYMPTOMS) + len(TASKS):
            tasks[list(TASKS)[chosen - len(SYMPTOMS)]]()
        elif unfinished:
            self._resume(unfinished.id)

    def _read_input(self, text: str, origin: str) -> None:
        """Read a script, a log, a description or a question about a term."""
        given = classify_given(text)
        if given.kind == "term":
            self._search(given.value)
            return
        self.state.begin()
        if line := take_text(self.state, given, origin):
            self.prompt.write("", line)
        self.interview.diagnose()

    def _begin_case(self, symptom: Symptom) -> None:
        case = self.state.begin()
        if self.state.unsaved:
            self.prompt.write(f"  {self.prompt.status_sign('warn')} {self.state.unsaved}")
        for question, answer in symptom.answers.items():
            case.answer(question, answer)
        if symptom.id in WITH_LOG:
            self._paste()
        elif symptom.id in OF_A_RUNNING_JOB and self.state.reports:
            from .job import show_triage

            if symptom.id != "hangs":
                self.state.reports = slow_jobs_first(self.state.reports)
            show_triage(self.state, self.prompt)
            self.interview.diagnose()
        else:
            self.interview.ask()

    def _check(self) -> None:
        show_checks(self.state, self.prompt)

    def _review(self) -> None:
        """Review a script or a directory, go through its findings, and show the causes that they support."""
        typed = self.prompt.ask("Path of your training script, or of a directory (PATH --to ddp migrates it): ")
        if not typed.strip():
            self.prompt.write("  No script was given. In the directory of your scripts:", "  $ ddpwizard review .")
            return
        self.state.begin()
        if review_path(self.state, self.prompt, typed):
            self.interview.diagnose()

    def _learn(self) -> None:
        from .learn import run_learn

        run_learn(self.state, self.prompt, "")

    def _search(self, words: str = "") -> None:
        from ...app.diagnosis.cause_text import cause_lines
        from ...app.diagnosis.entry_search import find_entries
        from ...app.diagnosis.term_text import find_term, term_lines
        from ...app.review.rule_descriptions import rule_lines

        words = words or self.prompt.ask("Search for: ")
        if term := find_term(self.state.knowledge, words):
            self.prompt.write("", *term_lines(term, self.state.knowledge, {}), "")
        if rule := self.state.knowledge.rules.get(words.strip().upper()):
            self.prompt.write("", *rule_lines(words.strip().upper(), rule), "")
        causes = self.state.knowledge.causes
        found = [causes[each.id] for each in find_entries(self.state.knowledge, words) if each.kind == "cause"]
        if not found:
            self.prompt.write("  No known cause has these words.")
            return
        given = self.prompt.choose([cause.title for cause in found], {"h": "home"}, "Which one? ")
        if given != "h":
            self.prompt.write("", *cause_lines(found[int(given) - 1], self.state.knowledge))

    def _plan(self) -> None:
        from .planner import plan_run

        plan_run(self.state, self.prompt)

    # -- the case

    def _resume(self, id_: str) -> None:
        screen, arguments = self.state.resume(id_)
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
        elif screen == "fix":
            offer_fixes(self.state, self.prompt, arguments["cause"])
            self.interview.diagnose()
        elif screen == "step" or (screen == "home" and self.state.case.answers):
            self.interview.ask(question if question not in self.state.case.answers else "")
        else:
            self.interview.diagnose()

    def _paste(self) -> None:
        self.state.record_navigation("paste")
        self.prompt.write(
            "",
            f"Paste the error or the log, then a line with only {PASTE_END!r}. Or give the path of a log or script.",
            *(f"  recent: {path}" for path in self.state.recent_logs()),
            f"If you have neither, enter {PASTE_END!r} to continue with questions.",
        )
        while True:
            text = self.prompt.paste(is_whole=_names_a_file)
            if not text.strip():
                self.interview.ask()
                return
            try:
                line = take_text(self.state, classify_given(text), "the pasted text")
            except UserError as error:
                self._show_error(error)
                continue
            self.prompt.write(*(["", line] if line else []))
            self.interview.diagnose()
            return

    def _show_error(self, error: UserError) -> None:
        self.prompt.write(f"{error.message} → {error.next_step}" if error.next_step else error.message)


def _described(session: Session) -> list[str]:
    return [session.id, *filter(None, [subject_text(session)])]


def _names_a_file(line: str) -> bool:
    try:
        return bool(line.strip()) and expand_user(line.strip()).is_file()
    except (OSError, ValueError, UserError):
        return False


def _last_snapshot(session: Session) -> Snapshot | None:
    last = session.last("snapshot")
    return snapshot_from_plain(last.data) if last else None
