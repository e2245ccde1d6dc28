"""The knowledge base: search as you type, read an entry, find related causes."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from textwrap import indent
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from ...app.diagnosis.cause_text import WEIGHT_WIDTH, EntryLine, cause_sections
from ...app.diagnosis.entry_search import find_entries, nearest_entries
from ...app.review.rule_descriptions import rule_lines
from ...app.text.paragraphs import reflow
from ...app.text.units import count_text
from ...knowledge.schema import Cause, Knowledge
from ..dialogs.term_lookup import LookupMixin
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import safe_content
from ..widgets.line_input import LineInput
from ..widgets.long_text import LongText
from ..widgets.term import term_paragraphs

TERM, RULE = "term:", "rule:"  # begin the ids of rows that are no causes


class BrowserScreen(LookupMixin, WizardScreen):
    """The list of causes, with a search also of terms and rules, and the entry of the marked one."""

    CSS_PATH = Path(__file__).with_name("browser.tcss")
    TITLE = "Knowledge base"
    AUTO_FOCUS = ""  # the search or the list, not one after the other
    ABOUT = (
        "All known causes. Press / to search titles, ids, symptoms, terms and rules of the review as you type. The "
        "arrow keys move through the list. Tab goes to the text of the entry, which the arrow keys scroll."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", id="browse.search", tooltip="Search by title, symptom, id, term or rule"),
        Binding("f", "fix", "fix", id="browse.fix", tooltip="Show the fixes of this cause on this machine"),
        Binding(
            "g", "related", "related", id="browse.related", tooltip="Show causes that share evidence with this one"
        ),
    ]

    class RelatedFound(Message):
        """The related causes of a cause."""

        def __init__(self, cause: str, related: list[tuple[str, str]]) -> None:
            super().__init__()
            self.cause, self.related = cause, related

    def __init__(self, cause: str = "", searching: bool = False, words: str = "") -> None:
        super().__init__()
        self._first, self._searching, self._words = cause, searching, words
        self._only_similar = False
        self._shown: str | None = None  # the id of the row whose entry is shown; "" if there is none

    @property
    def _causes(self) -> dict[str, Cause]:
        return self.state.knowledge.causes

    @property
    def _marked_cause(self) -> str | None:
        """The id of the marked cause; None for a term."""
        marked = self.query_one("#found", Choices).marked
        return marked.id if marked and marked.id in self._causes else None

    def body(self) -> Iterable[Widget]:
        yield LineInput(placeholder="search (/)", moves="#found", id="search")
        with Container(id="sides"):
            yield Choices(self._rows(""), numbered=False, verb="read", id="found")
            yield LongText(id="entry")

    def on_mount(self) -> None:
        found = self.query_one("#found", Choices)
        at = next((n for n, item in enumerate(found.items) if item.id == self._first), 0)
        found.highlighted = at
        self._show()
        (self.query_one("#search") if self._searching else found).focus()
        self.show_header(facts=f"{len(found.items)} causes")
        if self._words:
            self.query_one("#search", LineInput).value = self._words
            found.focus()

    # -- searching

    def _rows(self, typed: str) -> list[Choice]:
        """Return all causes, or the entries that have the words typed; if there are none, those with similar names."""
        knowledge = self.state.knowledge
        found = [self._row(entry.id) for entry in find_entries(knowledge, typed)]
        self._only_similar = not found
        return found or [self._row(name) for name in nearest_entries(knowledge, typed)]

    def _row(self, name: str) -> Choice:
        """Return the row of a cause, a rule or a term."""
        knowledge = self.state.knowledge
        if name in knowledge.causes:
            return Choice(name, safe_content(knowledge.causes[name].title))
        if name in knowledge.rules:
            return Choice(RULE + name, safe_content(f"{name}  {knowledge.rules[name].title}"), "rule")
        return Choice(TERM + name, safe_content(name), "term")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        rows = self._rows(event.value)
        exact = bool(rows) and rows[0].id not in self._causes
        self.query_one("#found", Choices).set_items(rows, first=exact)
        facts = [f"{sum(row.id in self._causes for row in rows)} of {len(self._causes)} causes"]
        for prefix, name in ((TERM, "term"), (RULE, "rule")):
            if count := sum(row.id.startswith(prefix) for row in rows):
                facts.append(count_text(count, name))
        self.show_header(facts=", ".join(facts))
        self.show_status("No entry has these words. Similar names are listed." if self._only_similar and rows else "")
        self._show()

    @on(Input.Submitted)
    def _searched_for(self) -> None:
        self.query_one("#found").focus()

    @on(Choices.Marked)
    def _marked(self) -> None:
        self._show()

    @on(Choices.Picked)
    def _picked(self) -> None:
        self.query_one("#entry").focus()

    def _show(self) -> None:
        marked = self.query_one("#found", Choices).marked
        if (wanted := marked.id if marked else "") == self._shown:
            return
        self._shown = wanted
        if not marked:
            entry = [Content("Nothing found.")]
        elif cause := self._causes.get(marked.id):
            entry = entry_paragraphs(cause, self.state.knowledge)
        elif marked.id.startswith(RULE):
            id_ = marked.id.removeprefix(RULE)
            heading, *lines = rule_lines(id_, self.state.knowledge.rules[id_])
            entry = [safe_content(heading, "bold"), *map(safe_content, lines)]
        else:
            entry = term_paragraphs(marked.id.removeprefix(TERM), self.state.knowledge)
        self.query_one("#entry", LongText).show(*entry)

    # -- actions

    def action_search(self) -> None:
        self.query_one("#search").focus()

    async def action_fix(self) -> None:
        if cause := self._marked_cause:
            await self.wizard.open("fix", cause=cause)

    def action_related(self) -> None:
        if cause := self._marked_cause:
            self.run_worker(self._relate(cause), group="related", exclusive=True)

    async def _relate(self, cause: str) -> None:
        from ...app.diagnosis.decision_graph import related_causes

        # In a thread: loading networkx takes a moment.
        self.post_message(
            self.RelatedFound(cause, await asyncio.to_thread(related_causes, self.state.knowledge, cause))
        )

    @on(RelatedFound)
    def _related_found(self, event: RelatedFound) -> None:
        from ..dialogs.pick import PickDialog

        rows = [
            Choice(id_, safe_content(self._causes[id_].title), safe_content(why, "$muted"))
            for id_, why in event.related
        ]
        title = f"Related to: {self._causes[event.cause].title}"
        self.app.push_screen(PickDialog(title, rows), callback=self._go_to)

    def _go_to(self, id_: str | None) -> None:
        if id_:
            self.query_one("#search", Input).clear()
            found = self.query_one("#found", Choices)
            found.set_items(self._rows(""))
            found.highlighted = next(n for n, item in enumerate(found.items) if item.id == id_)
            self._show()


def entry_paragraphs(cause: Cause, knowledge: Knowledge) -> list[Content]:
    """Render an entry: headings, paragraphs, lists."""
    rows = [
        safe_content(cause.title, "bold"),
        safe_content(f"{cause.family} / {cause.id}", "$muted"),
        Content(""),
        safe_content(reflow(cause.summary)),
    ]
    for section in cause_sections(cause, knowledge):
        rows += [Content(""), Content.styled(section.title, "bold $accent"), *map(_line, section.lines)]
    return rows


def _line(line: EntryLine) -> Content:
    if line.kind == "item":
        return Content.assemble("  – ", safe_content(line.text))
    if line.kind == "detail":
        return safe_content(indent(reflow(line.text), "    "))
    if line.kind == "code":
        return safe_content("      " + line.text)
    if line.weight:
        return Content.assemble((f"  {line.weight:<{WEIGHT_WIDTH}} ", "$muted"), safe_content(line.text))
    return safe_content(reflow(line.text))
