"""The pages of a chapter."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from ...app.labs.course import CourseChapter
from ...app.labs.progress import load_progress, save_progress
from ...app.text.units import count_text
from ..dialogs.term_lookup import LookupMixin
from ..shell.base import WizardScreen
from ..widgets.formatting import safe_content
from ..widgets.scrolling import ScrolledText
from .chapter_labs import ChapterLabsScreen


class ChapterScreen(LookupMixin, WizardScreen):
    """One page at a time; the labs are behind the last one."""

    CSS_PATH = Path(__file__).with_name("chapter.tcss")
    TITLE = "Chapter"
    AUTO_FOCUS = "ScrolledText"
    ABOUT = (
        "Read on with enter or →: a page that is longer than the screen is scrolled first. ← shows the page before. "
        "The labs of the chapter let you break and repair what it explains."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        # Priority, as the page that is scrolled has keys of the same names.
        Binding(
            "n,right,space,enter",
            "read_on",
            "read on",
            priority=True,
            id="chapter.next",
            tooltip="Show the rest of the page, then the next page; after the last one, the labs",
        ),
        Binding(
            "p,left", "page_before", "page before", priority=True, id="chapter.before", tooltip="Show the page before"
        ),
        Binding("l", "labs", "labs", id="chapter.labs", tooltip="Choose a lab of this chapter"),
    ]

    def __init__(self, entry: CourseChapter) -> None:
        super().__init__()
        self._entry = entry
        self._page = min(load_progress().pages.get(entry.chapter.id, 1), len(entry.chapter.pages)) - 1

    def body(self) -> Iterable[Widget]:
        yield ScrolledText(id="page")

    def on_mount(self) -> None:
        self._show()

    def _show(self) -> None:
        chapter = self._entry.chapter
        self.show_header(f"{self._entry.number}  {chapter.title}", f"page {self._page + 1} of {len(chapter.pages)}")
        self.query_one(ScrolledText).show(*map(safe_content, chapter.pages[self._page].splitlines()))
        self.call_after_refresh(self._show_rest)

    @on(ScrolledText.Moved)
    def _show_rest(self) -> None:
        """Show how many lines are below the screen; a page whose last line is shown counts as read."""
        chapter = self._entry.chapter
        if below := self.query_one(ScrolledText).lines_below:
            self.show_status(f"↓ {count_text(below, 'more line')}: enter")
            return
        last = self._page + 1 == len(chapter.pages)
        labs = f"enter: {count_text(len(self._entry.labs), 'lab')} of this chapter" if last and self._entry.labs else ""
        self.show_status(labs)
        progress = load_progress()
        if progress.pages.get(chapter.id, 0) <= self._page:
            progress.pages[chapter.id] = self._page + 1
            save_progress(progress)

    def action_read_on(self) -> None:
        page = self.query_one(ScrolledText)
        if page.lines_below:
            page.scroll_relative(y=max(1, page.size.height - 1), animate=False, immediate=True)
        elif self._page + 1 == len(self._entry.chapter.pages):
            self.action_labs()
        else:
            self._page += 1
            self._show()

    def action_page_before(self) -> None:
        self._page = max(0, self._page - 1)
        self._show()

    def action_labs(self) -> None:
        self.app.push_screen(ChapterLabsScreen(self._entry))
