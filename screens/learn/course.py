"""The chapters and labs, with what is done; the marked one is described next to the list."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from ...app.labs.course import QUIZ, QUIZ_SUMMARY, QUIZ_TITLE, listed_lab
from ...app.labs.progress import load_progress
from ...app.text.paragraphs import reflow
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content, status_sign
from ..widgets.long_text import LongText


class CourseScreen(WizardScreen):
    """All chapters, each with its labs."""

    CSS_PATH = Path(__file__).with_name("course.tcss")
    TITLE = "Learn distributed training"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", id="course.search", tooltip="Search the knowledge base and its terms"),
    ]
    ABOUT = (
        "Chapters of a few pages, and labs: small jobs that really fail on this machine. Run one, find the cause, "
        "repair your copy, and prove it. What you have done is kept. The number of a chapter goes to it."
    )

    def __init__(self, number: str = "") -> None:
        super().__init__()
        self._number = number
        self._begun = False

    def body(self) -> Iterable[Widget]:
        with Container(id="sides"):
            yield Choices(numbered=False, verb="open", id="course")
            yield LongText(id="about")

    async def on_mount(self) -> None:
        if len(self.app.screen_stack) > 1:
            self.call_after_refresh(self._begin)  # a key has opened it, so that a frame comes first
        else:
            await self._begin()

    async def _begin(self) -> None:
        """Read the chapters and labs, and show them."""
        self._begun = True
        self._show()
        if half_done := self.state.course.half_done(load_progress()):
            self.query_one("#course", Choices).mark(half_done.number)
            self.show_status(f"Lab {half_done.number} is not done: enter goes on with it")
        if left_out := self.state.course.left_out:
            self.show_status(left_out[0])
        if self._number:
            self.query_one("#course", Choices).mark(self._number)  # the row to come back to
            await self._open(self._number)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if self._begun:
            self._show()

    def _show(self) -> None:
        progress = load_progress()
        listing = self.state.course.listing(progress)
        rows: list[Choice] = []
        for chapter in listing:
            rows.append(Choice(chapter.number, safe_content(f"{chapter.number:>2}  {chapter.title}", "bold")))
            for lab in chapter.labs:
                sign = status_sign("ok", self.ascii_only) if lab.solved else Content(" " * (1 + 3 * self.ascii_only))
                if lab.answer_shown:
                    sign = status_sign("skip", self.ascii_only)
                style = "$muted" if lab.same_as else ""
                title = safe_content(lab.title, style)
                label = Content.assemble(f"  {lab.number:>5} ", sign, " ", title)
                rows.append(Choice(lab.number, label, indent=label.cell_length - title.cell_length))
            if chapter.quiz:
                rows.append(Choice(QUIZ, safe_content(f"          {QUIZ_TITLE}")))
        self.query_one("#course", Choices).set_items(rows)
        self.show_header(facts=self.state.course.done_text(progress))
        self._show_marked()

    @on(Choices.Marked)
    def _show_marked(self) -> None:
        marked = self.query_one("#course", Choices).marked
        rows: list[Content] = []
        if marked and (lab := self.state.course.lab(marked.id)):
            same = f"The lab {lab.same_as} once more. " if lab.same_as else ""
            done = listed_lab(lab, load_progress()).done
            text = f"{reflow(lab.lab.story)}\n\n{done[0].upper()}{done[1:]}." if done else reflow(lab.lab.story)
            rows = self._headed(f"Lab {lab.number}: {lab.lab.title}", same + text)
        elif marked and marked.id == QUIZ:
            rows = self._headed(QUIZ_TITLE, QUIZ_SUMMARY)
        elif marked and (chapter := self.state.course.chapter(marked.id)):
            rows = self._headed(chapter.chapter.title, chapter.chapter.summary)
        self.query_one("#about", LongText).show(*rows)

    def _headed(self, heading: str, text: str) -> list[Content]:
        """Return the text of the marked row; where it is below the list, the marked row is its heading."""
        rows = [safe_content(heading, "bold"), Content("")] if self.has_class("-broad") else []
        return [*rows, safe_content(text)]

    @on(Choices.Picked)
    async def _picked(self, event: Choices.Picked) -> None:
        await self._open(event.id)

    async def action_search(self) -> None:
        await self.wizard.open("browse", searching=True)

    async def _open(self, number: str) -> None:
        if number == QUIZ:
            await self.wizard.open("quiz")
        elif lab := self.state.course.lab(number):
            await self.wizard.open("lab", entry=lab)
        elif (chapter := self.state.course.chapter(number)) and chapter.chapter.pages:
            await self.wizard.open("chapter", entry=chapter)
