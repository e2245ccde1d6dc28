"""The case of the plain wizard: questions with the ranking after each, probes that may run, the diagnosis."""

import asyncio

from ...app.diagnosis import dialogue
from ...app.diagnosis.case import SCRIPT_PATH, SKIPPED
from ...app.diagnosis.experiment import ELSEWHERE, INSPECT_THERE, WHERE_IS_JOB, choose_experiment
from ...app.errors import UserError
from ...app.evidence import Diagnosis, RankedCause, ReasonLine
from ...app.logs import timeline_chart
from ...app.snapshot import Snapshot
from ...app.text.terminal import Verbatim
from ...app.text.units import probability_text
from ..shell.state import WizardState
from ..shell.take_text import take_script_path
from .fix import offer_fixes
from .prompt import Prompt, Quit
from .ranks import show_rank
from .stop_job import can_stop, stop_job

SHOWN_CAUSES = 5
BAR_WIDTH = 10


class Interview:
    """Questions and diagnosis of the current case."""

    def __init__(self, state: WizardState, prompt: Prompt) -> None:
        self.state = state
        self.prompt = prompt

    def ask(self, question: str = "") -> None:
        """Ask questions and show the ranking after each, until the diagnosis is sure or no question is left."""
        case = self.state.case
        while True:
            diagnosis = self._probe(self.state.diagnosis())
            question = question or dialogue.next_question(case, diagnosis)
            if dialogue.is_sure(diagnosis) or not question:
                break
            self._show_ranking(diagnosis)
            self.state.record_navigation("step", question)
            given = self._ask(question)
            if given == "d":
                break
            if given == "f":
                self._fix(diagnosis)
            elif given == "b":
                question = self._undo_answer()
            else:
                self._record(question, given)
                question = ""
        if not dialogue.is_sure(diagnosis) and not question:
            self._show_experiment()
        self.diagnose()

    def _record(self, question: str, given: str) -> None:
        """Take an answer into the case; a job that runs elsewhere can be inspected at once."""
        case = self.state.case
        case.answer(question, SKIPPED if given == "s" else given)
        if question == WHERE_IS_JOB and case.answer_to(question) in ELSEWHERE:
            self._show_experiment(title=INSPECT_THERE)

    def _show_experiment(self, title: str = dialogue.NOT_DECIDED) -> None:
        """Show what to run, since answers do not decide the case."""
        found = choose_experiment(self.state.case, self.state.launch_command)
        self.prompt.write("", title, *(Verbatim(f"  $ {command}") for command in found.commands), f"  {found.shows}")

    def _fix(self, diagnosis: Diagnosis) -> None:
        named = diagnosis.named(1)
        if named:
            offer_fixes(self.state, self.prompt, named[0].id)
        else:
            self.prompt.write("  No cause yet.")

    def _ask_script(self) -> str:
        """Ask for the path of the script and review it; return "s", or the letter given."""
        while True:
            given = self.prompt.ask(f"{dialogue.SCRIPT_ASKED} (enter skips) ").strip()
            self._leave_if(given)
            if given in ("", "s", "b", "d", "f"):
                return given or "s"
            try:
                self.prompt.write(f"  {take_script_path(self.state, given)}")
            except UserError as error:
                self.prompt.write(f"  {error}")
            else:
                return self.state.case.script

    def _ask(self, question: str) -> str:
        """Return the id of the answer given, or s, b, d or f."""
        if question == SCRIPT_PATH:
            self.prompt.write("", f"  ({dialogue.SCRIPT_WHY})")
            return self._ask_script()
        spec = self.state.knowledge.questions[question]
        self.prompt.write("", spec.ask, f"  (why I ask: {spec.why})")
        letters = {"s": "skip", "b": "back", "d": "diagnosis so far", "f": "fix", "h": "home", "q": "quit"}
        offered = self.state.case.answers_to_offer(question)
        given = self.prompt.choose(list(offered.values()), letters, "Your answer: ")
        self._leave_if(given)
        return given if given in letters else list(offered)[int(given) - 1]

    def _undo_answer(self) -> str:
        answers = list(self.state.case.answers)
        if not answers:
            raise Quit(home=True)
        self.state.case.take_back_answer(answers[-1])
        return answers[-1]

    def _probe(self, diagnosis: Diagnosis) -> Diagnosis:
        """Run the most useful probes that may run without being asked for, and return the new diagnosis."""
        while probe := dialogue.next_probe(diagnosis):
            spec = self.state.knowledge.probes[probe]
            self.prompt.show_progress(f"{self.prompt.status_sign('running')} {spec.title} (at most {spec.limit_s:g} s)")
            found = asyncio.run(self._run_probe(probe))
            self.state.add_snapshot(found)
            problem = found.failed.get(probe)
            sign = self.prompt.status_sign("unknown" if problem else "ok")
            self.prompt.write(f"  {sign} {spec.title}: " + (f"failed, {problem}" if problem else "done"))
            diagnosis = self.state.diagnosis()
        return diagnosis

    def diagnose(self) -> None:
        """Show the ranking with its reasons, and offer what can be done."""
        while True:
            diagnosis = self.state.diagnosis()
            named = diagnosis.named(SHOWN_CAUSES)
            self.state.record_navigation("diagnosis")
            self.state.record_diagnosis(diagnosis, named)
            self._show_verdict(diagnosis, named)
            letters = {"m": "ask me more"} if diagnosis.next else {}
            letters |= {"x": "the first cause is wrong"} if named else {}
            letters |= {"t": "the ranks over time"} if self.state.timeline and self.state.timeline.several else {}
            letters |= {"s": "show a rank"} if self.state.reports else {}
            letters |= {"k": "stop or restart the job"} if can_stop(self.state) else {}
            letters |= {"r": "save a report", "h": "home", "q": "quit"}
            rows = [f"Fix: {cause.title}" for cause in named]
            given = self.prompt.choose(rows, letters, "What next? ")
            self._leave_if(given)
            if given == "m":
                self._more(diagnosis)
            elif given == "r":
                self._report()
            elif given == "t" and self.state.timeline:
                self.prompt.write("", *timeline_chart.chart_lines(self.state.timeline))
            elif given == "s":
                show_rank(self.state, self.prompt)
            elif given == "k":
                stop_job(self.state, self.prompt)
            elif given == "x":
                self._reject(named[0], diagnosis)
            else:
                offer_fixes(self.state, self.prompt, named[int(given) - 1].id)

    def _reject(self, cause: RankedCause, diagnosis: Diagnosis) -> None:
        """Record that it was not this cause, and which it was if the user knows."""
        self.state.case.settle(cause.id, was=False)
        others = [other for other in diagnosis.causes if other.id != cause.id]
        letters = {"n": "something else", "u": "Not known yet"}
        self.prompt.write("", "The marked cause was wrong. What was it?")
        given = self.prompt.choose([other.title for other in others], letters, "It was: ")
        if given not in letters:
            self.state.case.settle(others[int(given) - 1].id, was=True)
        elif given == "n" and self.state.case.session is not None:
            self.prompt.write(f"  Once you know: ddpwizard kb new NAME --session {self.state.case.session.id}")

    def _more(self, diagnosis: Diagnosis) -> None:
        """Ask one more question, however sure the diagnosis is."""
        diagnosis = self._probe(diagnosis)
        question = dialogue.next_question(self.state.case, diagnosis)
        if not question:
            self._show_experiment(title=dialogue.NO_MORE_QUESTIONS)
            return
        self.state.record_navigation("step", question)
        given = self._ask(question)
        if given == "b":
            self._undo_answer()
        elif given == "f":
            self._fix(diagnosis)
        elif given != "d":
            self._record(question, given)

    async def _run_probe(self, probe: str) -> Snapshot:
        context = self.state.context(self.prompt.show_progress)
        return await self.state.run_probes([probe], context, self.state.granted)

    def _show_ranking(self, diagnosis: Diagnosis) -> None:
        named = diagnosis.named(3)
        if named:
            self.prompt.write("", "Most likely so far")
            self.prompt.write(
                *(_bar(cause.confidence, cause.title) for cause in named), _bar(diagnosis.rest(named), "something else")
            )

    def _show_verdict(self, diagnosis: Diagnosis, named: list[RankedCause]) -> None:
        first = timeline_chart.first_failure_sentence(self.state.timeline) if self.state.timeline else ""
        self.prompt.write(*(["", first] if first else []))
        if not named:
            self.prompt.write("", dialogue.no_cause_text(diagnosis))
        else:
            best = self.state.knowledge.causes[named[0].id]
            likelihood = dialogue.likelihood(named[0].confidence)
            self.prompt.write("", f"{likelihood}: {best.title}", f"  {best.summary}", "", "Because")
            self.prompt.write(*(_reason(line) for line in named[0].because))
            if named[0].against:
                self.prompt.write("Evidence against it", *(_reason(line) for line in named[0].against))
            self.prompt.write("", *(_bar(cause.confidence, cause.title) for cause in named))
            self.prompt.write(_bar(diagnosis.rest(named), "something else"))
        self.prompt.write("")

    def _report(self) -> None:
        from ...app import report

        session = self.state.case.session
        assert session is not None
        self.prompt.write(f"  Saved as {report.save_report(session, self.state.knowledge)}")

    def _leave_if(self, given: str) -> None:
        if given in ("q", "h"):
            raise Quit(home=given == "h")


def _bar(share: float, title: str) -> str:
    return f"  {'#' * round(share * BAR_WIDTH):<{BAR_WIDTH}} {probability_text(share):>5}  {title}"


def _reason(line: ReasonLine) -> str:
    return f"  {line.source:<7} {line.what}" + (f"  [{line.where}]" if line.where else "")
