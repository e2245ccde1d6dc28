"""The diagnosis: ranked causes, the evidence for and against the marked one, and what to do next."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from ...app.diagnosis import dialogue
from ...app.errors import UserError
from ...app.evidence import Diagnosis, RankedCause
from ...app.logs import timeline_chart
from ...app.text.units import count_text
from ..dialogs.pick import PickDialog
from ..shell.base import WizardScreen
from ..widgets.cause_ranking import reason_rows
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import join_lines, probability_cell, safe_content, share_bar
from ..widgets.source import excerpt

SHOWN_CAUSES = 9
UNKNOWN, UNLISTED = "?", "-"
LIST_WIDTH, MARGINS = 44, 5  # as in diagnosis.tcss
BAR_WIDTH = 5


class DiagnosisScreen(WizardScreen):
    """The ranked causes with their evidence."""

    CSS_PATH = Path(__file__).with_name("diagnosis.tcss")
    TITLE = "Diagnosis"
    ABOUT = (
        "The possible causes, the most likely first, with the evidence for and against the marked one and the line of "
        "the log or script that shows it. A cause is certain only when its fix is proved."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "fix", "fix", id="diagnosis.fix", tooltip="Show the fixes of the marked cause"),
        Binding("n", "next", "next step", id="diagnosis.next", tooltip="Go to the most useful question or probe"),
        Binding("x", "reject", "not this", id="diagnosis.reject", tooltip="Record that the marked cause was wrong"),
        Binding("t", "timeline", "timeline", id="diagnosis.timeline", tooltip="Show what each rank logged over time"),
        Binding("r", "report", "report", id="diagnosis.report", tooltip="Save this case as a page that can be shared"),
    ]

    def __init__(self, status: str = "") -> None:
        super().__init__()
        self._diagnosis: Diagnosis | None = None
        self._status = status

    def body(self) -> Iterable[Widget]:
        yield Static(id="verdict")
        with Container(id="sides"):
            yield Choices(numbered=True, verb="explain")
            with VerticalScroll(id="detail"):
                yield Static(id="why")
        yield Static(id="offer")

    def on_mount(self) -> None:
        self._show()
        self.show_status(self._status)

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        if self._diagnosis:
            self._show_marked()

    def on_screen_resume(self) -> None:
        if self.is_mounted and self._diagnosis:
            self._show()

    def _show(self) -> None:
        diagnosis = self._diagnosis = self.state.diagnosis()
        self.state.record_navigation("diagnosis")
        self.state.record_diagnosis(diagnosis, self._named())
        self.query_one("#verdict", Static).update(self._verdict(diagnosis))
        self.query_one(Choices).set_items([self._row(cause) for cause in self._named()])
        self._show_marked()
        offer = dialogue.next_offer(self.state.case, diagnosis)
        self.query_one("#offer", Static).update(
            Content.assemble(("n", "bold"), safe_content(f" next: {offer}")) if offer else Content("")
        )
        probes = count_text(len(self.state.case.probed), "probe")
        self.show_header(facts=f"{count_text(len(diagnosis.evidence), 'fact')} · {probes} ran")

    def _named(self) -> list[RankedCause]:
        return self._diagnosis.named(SHOWN_CAUSES) if self._diagnosis else []

    def _verdict(self, diagnosis: Diagnosis) -> Content:
        named = self._named()
        if not named:
            more = " Press n to answer questions." if diagnosis.in_scope else ""
            return Content(dialogue.no_cause_text(diagnosis) + more)
        first = timeline_chart.first_failure_sentence(self.state.timeline) if self.state.timeline else ""
        best = self.state.knowledge.causes[named[0].id]
        likelihood = f"{dialogue.likelihood(named[0].confidence)}: "
        named_cause = Content.assemble((likelihood, "$muted"), safe_content(best.title, "bold"))
        return join_lines(safe_content(first), named_cause) if first else join_lines(named_cause, Content(best.summary))

    def _row(self, cause: RankedCause) -> Choice:
        style = "$muted" if cause.id in self.state.case.rejected else ""
        title = safe_content(cause.title + (" (ruled out)" if style else ""), style)
        share = Content.assemble(
            (share_bar(cause.confidence, BAR_WIDTH), "$accent"), " ", (probability_cell(cause.confidence), "bold")
        )
        return Choice(cause.id, Content.assemble(share, " ", title))

    @on(Choices.Marked)
    def _marked(self) -> None:
        self._show_marked()

    def _show_marked(self) -> None:
        self.query_one("#detail", VerticalScroll).scroll_home(animate=False)
        width = self.app.size.width - (LIST_WIDTH if self.has_class("-broad") else 0) - MARGINS
        self.query_one("#why", Static).update(self._reasons(width))

    def _reasons(self, width: int) -> Content:
        cause = self._cause()
        if cause is None or self._diagnosis is None:
            return join_lines(*self._messages())
        rows = [Content.styled("Evidence for it", "bold")]
        rows += [row for reason in cause.because for row in reason_rows(reason, width, most=6)]
        if cause.against:
            rows.append(Content.styled("Evidence against it", "bold"))
            rows += [row for reason in cause.against for row in reason_rows(reason, width, most=6)]
        for where in dict.fromkeys(reason.where for reason in cause.because if reason.where):
            rows += excerpt(where, self.state.texts, width)
        return join_lines(*rows, *self._messages())

    def _messages(self) -> list[Content]:
        """Return messages that are no cause: harmless lines, and consequences of a failure elsewhere."""
        messages = self.state.knowledge.messages
        seen = [item for item in self.state.case.evidence if item.id.partition(":")[0] == "message"]
        rows = [
            safe_content(f"{messages[id_].says}  {Path(item.where).name}", "$muted")
            for item in seen
            if (id_ := item.id.partition(":")[2]) in messages
        ]
        return [Content.styled("Messages that are not the cause", "bold"), *rows] if rows else []

    def _cause(self) -> RankedCause | None:
        marked = self.query_one(Choices).marked
        return next((cause for cause in self._named() if marked and cause.id == marked.id), None)

    # -- actions

    @on(Choices.Picked)
    async def _picked(self, event: Choices.Picked) -> None:
        await self.wizard.open("browse", cause=event.id)

    async def action_fix(self) -> None:
        if cause := self._cause():
            await self.wizard.open("fix", cause=cause.id)
        else:
            self.show_status("No cause yet. Press n for the next question.")

    async def action_next(self) -> None:
        below = self.app.screen_stack[-2] if len(self.app.screen_stack) > 1 else None
        if type(below).__name__ == "QuestionScreen":
            await self.action_back()
        else:
            await self.wizard.open("step")

    def action_reject(self) -> None:
        if cause := self._cause():
            others = [
                Choice(each.id, safe_content(each.title))
                for each in self.state.diagnosis().causes
                if each.id != cause.id
            ]
            rows = [Choice(UNKNOWN, "Not known yet"), Choice(UNLISTED, "Something else"), *others]
            dialog = PickDialog("The marked cause was wrong. What was it?", rows)
            self.app.push_screen(dialog, callback=partial(self._settled, cause.id))

    def _settled(self, rejected: str, id_: str | None) -> None:
        """Record the rejection, and the right cause if it was given; nothing if the dialog was left."""
        if id_ is None:
            return
        self.state.case.settle(rejected, was=False)
        self._show()
        if id_ == UNKNOWN:
            self.show_status("Recorded. Press n for the question that separates the remaining causes.")
        elif id_ == UNLISTED:
            session = self.state.case.session
            assert session is not None
            self.show_status(
                f"Recorded. Once you know: ddpwizard kb new NAME --session {session.id} makes an entry of it."
            )
        else:
            self.state.case.settle(id_, was=True)
            self._show()
            self.show_status("Recorded: it was that.")

    def action_timeline(self) -> None:
        from .timeline import TimelineScreen

        if self.state.timeline:
            self.app.push_screen(TimelineScreen(self.state.timeline))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "timeline":
            return self.state.timeline is not None and self.state.timeline.several
        return True

    def action_report(self) -> None:
        from ...app import report

        try:
            assert self.state.case.session is not None
            self.show_status(f"Saved as {report.save_report(self.state.case.session, self.state.knowledge)}")
        except UserError as error:
            self.wizard.show_error(error)

    async def action_quit(self) -> None:
        self.state.close()
        await super().action_quit()
