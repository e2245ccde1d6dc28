"""The labs of a chapter, with what is done; a lab that is left leads back to this list."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from ...app.labs.course import QUIZ, QUIZ_TITLE, CourseChapter, is_done, listed_lab
from ...app.labs.progress import load_progress
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content


class ChapterLabsScreen(WizardScreen):
    """The labs of one chapter; the marked one is the first that is not done."""

    CSS_PATH = Path(__file__).with_name("chapter_labs.tcss")
    TITLE = "Labs"
    ABOUT = "Choose a lab by number or with enter. Escape goes back to the chapter."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "chapter", id="labs.back", tooltip="Go back to the chapter"),
    ]

    def __init__(self, entry: CourseChapter) -> None:
        super().__init__()
        self._entry = entry
        progress = load_progress()
        self._first = next((lab.number for lab in entry.labs if not is_done(lab.lab, progress)), "")

    def body(self) -> Iterable[Widget]:
        choices = Choices(self._rows(), verb="open")
        choices.mark(self._first)
        yield choices

    def on_mount(self) -> None:
        self.show_header(f"Labs: {self._entry.chapter.title}")
        if not self.query_one(Choices).items:
            self.show_status("This chapter has no lab. esc goes back.")

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.query_one(Choices).set_items(self._rows())

    def _rows(self) -> list[Choice]:
        done = load_progress()
        rows = [
            Choice(each.number, safe_content(each.lab.title), listed_lab(each, done).note) for each in self._entry.labs
        ]
        return [*rows, Choice(QUIZ, QUIZ_TITLE)] if self._entry.chapter.quiz else rows

    @on(Choices.Picked)
    async def _open(self, event: Choices.Picked) -> None:
        if event.id == QUIZ:
            await self.wizard.open("quiz")
        elif lab := next((each for each in self._entry.labs if each.number == event.id), None):
            await self.wizard.open("lab", entry=lab)
