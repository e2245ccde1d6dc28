"""Everything the wizard knows: search as you type, an entry beside it, and what is related to it."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from ...knowledge.schema import Cause, Knowledge
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import join_lines, reflow, safe_content
from ..widgets.line_input import LineInput


class BrowserScreen(WizardScreen):
    """Search and read."""

    CSS_PATH = Path(__file__).with_name("browser.tcss")
    TITLE = "What it knows"
    ABOUT = (
        "Every cause the wizard can name. slash searches titles, ids and symptoms as you type; the arrow keys move "
        "through what is found; tab goes to the entry, where the arrow keys scroll."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", id="browse.search", tooltip="Search by title, symptom or id"),
        Binding("f", "fix", "fix", id="browse.fix", tooltip="What mends this cause on this box"),
        Binding("g", "related", "related", id="browse.related", tooltip="Causes that share what speaks for this one"),
    ]

    class RelatedFound(Message):
        """The graph was built and asked."""

        def __init__(self, cause: str, related: list[tuple[str, str]]) -> None:
            super().__init__()
            self.cause, self.related = cause, related

    def __init__(self, cause: str = "", searching: bool = False) -> None:
        super().__init__()
        self._first, self._searching = cause, searching
        self._words: dict[str, str] = {}

    @property
    def _causes(self) -> dict[str, Cause]:
        return self.desk.knowledge.causes

    def body(self) -> Iterable[Widget]:
        self._words = {id_: _searched(entry) for id_, entry in self._causes.items()}
        yield LineInput(placeholder="search (/)", moves="#found", id="search")
        with Container(id="sides"):
            yield Choices(self._rows(""), numbered=False, verb="read", id="found")
            with VerticalScroll(id="entry"):
                yield Static(id="text")

    def on_mount(self) -> None:
        found = self.query_one("#found", Choices)
        at = next((n for n, item in enumerate(found.items) if item.id == self._first), 0)
        found.highlighted = at
        self._show()
        if self._searching:
            self.query_one("#search").focus()
        self.head(facts=f"{len(found.items)} causes")

    # -- searching

    def _rows(self, typed: str) -> list[Choice]:
        words = typed.lower().split()
        causes = [
            (not all(word in entry.title.lower() or word in id_ for word in words), entry)
            for id_, entry in self._causes.items()
            if all(word in self._words[id_] for word in words)
        ]
        ordered = sorted(causes, key=lambda found: (found[0], found[1].family, found[1].title))
        return [Choice(entry.id, safe_content(entry.title)) for _, entry in ordered]

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        rows = self._rows(event.value)
        self.query_one("#found", Choices).set_items(rows)
        self.head(facts=f"{len(rows)} of {len(self._words)} causes")
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
        self.query_one("#entry", VerticalScroll).scroll_home(animate=False)
        entry = entry_content(self._causes[marked.id], self.desk.knowledge) if marked else Content("Nothing found.")
        self.query_one("#text", Static).update(entry)

    # -- actions

    def action_search(self) -> None:
        self.query_one("#search").focus()

    async def action_fix(self) -> None:
        if marked := self.query_one("#found", Choices).marked:
            await self.wizard.open("fix", cause=marked.id)

    def action_related(self) -> None:
        if marked := self.query_one("#found", Choices).marked:
            self.run_worker(self._relate(marked.id), group="related", exclusive=True)

    async def _relate(self, cause: str) -> None:
        # networkx takes a moment to load: in a thread, so that the keys go on working.
        self.post_message(self.RelatedFound(cause, await asyncio.to_thread(related_causes, self.desk.knowledge, cause)))

    @on(RelatedFound)
    def _related_found(self, event: RelatedFound) -> None:
        from ..dialogs.pick import PickDialog

        rows = [
            Choice(id_, safe_content(self._causes[id_].title), safe_content(why, "$muted"))
            for id_, why in event.related
        ]
        title = f"Related to: {self._causes[event.cause].title}"
        self.wizard.push_screen(PickDialog(title, rows), callback=self._go_to)

    def _go_to(self, id_: str | None) -> None:
        if id_:
            self.query_one("#search", Input).clear()
            found = self.query_one("#found", Choices)
            found.set_items(self._rows(""))
            found.highlighted = next(n for n, item in enumerate(found.items) if item.id == id_)
            self._show()


def _searched(entry: Cause) -> str:
    return " ".join([entry.id, entry.title, entry.family, entry.summary, *entry.symptoms]).lower()


def entry_content(cause: Cause, knowledge: Knowledge) -> Content:
    """An entry for reading: headings, paragraphs, lists."""
    findings = knowledge.findings()

    def head(name: str) -> list[Content]:
        return [Content(""), Content.styled(name, "bold $accent")]

    def item(value: str) -> Content:
        return Content.assemble("  – ", safe_content(value))

    def weighed(weight: str, what: str) -> Content:
        return Content.assemble((f"  {weight:<9} ", "$muted"), safe_content(what))

    rows = [
        safe_content(cause.title, "bold"),
        safe_content(f"{cause.family} / {cause.id}", "$muted"),
        Content(""),
        safe_content(reflow(cause.summary)),
    ]
    rows += [*head("How it shows"), *map(item, cause.symptoms)]
    rows += [*head("What happens"), safe_content(reflow(cause.explain))]
    rows += head("What mends it")
    for fix in cause.fixes:
        rows.append(item(fix.title + (f" ({fix.safety}: {fix.why_unsafe})" if fix.why_unsafe else "")))
        rows += [safe_content("      " + line) for line in fix.text.strip().splitlines()]
    rows += head("What speaks for or against it")
    rows += [weighed(weight, findings[id_]) for id_, weight in cause.findings.items()]
    for question, answers in cause.questions.items():
        spec = knowledge.questions[question]
        rows += [weighed(weight, f"{spec.ask} {spec.answers[answer]}") for answer, weight in answers.items()]
    rows += [weighed(signature.weight, f"log line: {signature.pattern}") for signature in cause.signatures]
    if cause.tells_apart:
        rows += head("How to tell it from its neighbours")
        rows += [item(f"{other}: {what}") for other, what in cause.tells_apart.items()]
    if cause.changed:
        rows += head("What older advice says otherwise")
        rows += [item(f"since {change.since}: {change.what}") for change in cause.changed]
    rows += head("Holds for")
    rows.append(safe_content("  " + ", ".join(f"{name} {versions}" for name, versions in cause.holds_for.items())))
    rows += [*head("Sources"), *(item(f"{s.title} ({s.checked}) {s.url}") for s in cause.sources)]
    return join_lines(*rows)


def related_causes(knowledge: Knowledge, cause: str) -> list[tuple[str, str]]:
    """Other causes by what they share with this one in the decision graph, the named ones first: (id, why)."""
    from ...app.diagnosis.decision_graph import build_graph

    graph = build_graph(knowledge)
    found = dict.fromkeys(knowledge.causes[cause].see_also, "see also")
    shared: dict[str, int] = {}
    for source in graph.predecessors(cause):
        for other in graph.successors(source):
            if other != cause and graph.nodes[other]["kind"] == "cause":
                shared[other] = shared.get(other, 0) + 1
    for other, count in sorted(shared.items(), key=lambda each: -each[1]):
        found.setdefault(other, f"{count} sign{'s' * (count != 1)} in common")
    return list(found.items())
