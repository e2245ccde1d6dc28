"""The pages of the documentation site that are made from the knowledge base, the command line and the README.

``generated_pages`` returns all of them; ``mkdocs_hooks.py`` adds them to the pages of this directory.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
import msgspec
from ddpwizard.app.diagnosis.cause_text import EntryLine, cause_sections
from ddpwizard.app.review.rule_descriptions import rules_with_texts
from ddpwizard.app.text.markup import escape_markdown
from ddpwizard.cli import group
from ddpwizard.knowledge.chapters import Chapter, read_chapters
from ddpwizard.knowledge.labs import lab_ids
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.schema import Cause, Knowledge, Probe, Rule
from public_documents import DOCUMENTS, json_schema

ROOT = Path(__file__).parent.parent
HELP_COLUMNS = 100
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
INTRUSIVENESS = {
    "given": "reads what you have given",
    "reads": "only reads files, /proc and NVML",
    "connects": "also opens connections",
    "allocates": "also starts processes and uses memory",
    "perturbs": "also pauses or signals a job",
}
Row = Sequence[str]


class Sources(msgspec.Struct, frozen=True):
    """The sources of the pages."""

    knowledge: Knowledge
    chapters: dict[str, Chapter]
    labs: set[str]


def generated_pages() -> dict[str, str | bytes]:
    """Return the content of each generated file by its path in the site."""
    sources = Sources(read_knowledge(), read_chapters(), lab_ids())
    knowledge = sources.knowledge
    pages: dict[str, str | bytes] = {
        target: root_page((ROOT / name).read_text(encoding="utf-8")) for name, target in ROOT_PAGES.items()
    }
    pages |= {f"pictures/{path.name}": path.read_bytes() for path in (ROOT / "assets" / "pictures").glob("*.svg")}
    pages["causes/index.md"] = causes_index(knowledge)
    pages |= {f"causes/{id_}.md": cause_page(cause, sources) for id_, cause in knowledge.causes.items()}
    pages["chapters/index.md"] = chapters_index(sources)
    pages |= {f"chapters/{id_}.md": chapter_page(chapter, sources) for id_, chapter in sources.chapters.items()}
    pages["glossary.md"] = glossary_page(sources)
    pages["checks/index.md"] = checks_index(knowledge)
    pages |= {f"checks/{id_}.md": check_page(id_, probe, knowledge) for id_, probe in knowledge.probes.items()}
    rules = rules_with_texts(knowledge)
    pages["rules/index.md"] = rules_index(rules)
    pages |= {f"rules/{id_}.md": rule_page(id_, rule) for id_, rule in rules.items()}
    pages["commands.md"] = commands_page()
    pages["schemas/index.md"] = schemas_index()
    pages |= {f"schemas/{kind}.json": msgspec.json.format(msgspec.json.encode(json_schema(kind))) for kind in DOCUMENTS}
    return pages


def root_page(text: str) -> str:
    """Return a document of the root directory with its links as they are in the site."""
    text = re.sub(r"\((?:docs|assets)/([^)\s]+)\)", r"(\1)", text)
    for name, target in ROOT_PAGES.items():
        text = text.replace(f"({name})", f"({target})")
    return text


# -- causes


def causes_index(knowledge: Knowledge) -> str:
    """Return the list of causes by family."""
    parts = ["# Causes", f"{len(knowledge.causes)} causes. `ddpwizard explain ID` shows one in the terminal."]
    for family in sorted({cause.family for cause in knowledge.causes.values()}):
        rows = [
            (link(id_, f"{id_}.md"), inline(cause.title), inline(cause.summary))
            for id_, cause in sorted(knowledge.causes.items())
            if cause.family == family
        ]
        parts += [f"## {family}", table(("Cause", "Title", "What goes wrong"), rows)]
    return page(parts)


def cause_page(cause: Cause, sources: Sources) -> str:
    """Return the entry of a cause, then what is connected with it."""
    parts = [f"# {inline(cause.title)}", inline(cause.summary), f"Family {cause.family}, id `{cause.id}`."]
    for section in cause_sections(cause, sources.knowledge):
        if section.title not in UNLINKED:
            parts += [f"## {section.title}", *blocks(section.lines)]
    return page([*parts, *_cause_links(cause, sources)])


UNLINKED = ("Differences from similar causes", "See also")  # shown with links instead


def _cause_links(cause: Cause, sources: Sources) -> Iterator[str]:
    knowledge = sources.knowledge
    if cause.tells_apart:
        yield "## Differences from similar causes"
        yield bullets(f"{link(id_, f'{id_}.md')}: {inline(text)}" for id_, text in cause.tells_apart.items())
    related = {
        "See also": [link(id_, f"{id_}.md") for id_ in cause.see_also],
        "Rules": [link(id_, f"../rules/{id_}.md") for id_, rule in knowledge.rules.items() if rule.cause == cause.id],
        "Chapters": [
            link(chapter.title, f"../chapters/{id_}.md")
            for id_, chapter in sources.chapters.items()
            if cause.id in chapter.labs
        ],
        "Terms": [term_link(name, "../") for name, term in knowledge.terms.items() if cause.id in term.causes],
        "Lab": [f"`ddpwizard learn {cause.id}`"] if cause.id in sources.labs else [],
    }
    if any(related.values()):
        yield "## Related"
        yield bullets(f"{title}: {', '.join(links)}" for title, links in related.items() if links)


def blocks(lines: Sequence[EntryLine]) -> Iterator[str]:
    """Yield the lines of a section as Markdown: lines of one kind that follow each other are one block."""
    for (kind, is_weighed), together in itertools.groupby(
        (line for line in lines if line.text), lambda line: (line.kind, bool(line.weight))
    ):
        rows = list(together)
        if is_weighed:
            yield table(("Counts", "Observation"), [(row.weight, observation(row.text)) for row in rows])
        elif kind == "item":
            yield bullets(inline(row.text) for row in rows)
        elif kind == "code":
            yield code("\n".join(row.text for row in rows))
        else:
            yield from (part for row in rows for part in prose(row.text))


def observation(text: str) -> str:
    """Return an observation for a table; the pattern of a log line as code."""
    what, colon, pattern = text.partition("log line: ")
    return f"log line: {inline(f'`{pattern}`')}" if colon and not what else inline(text)


def prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text as Markdown; one with indented lines keeps them as they are."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        rows = paragraph.splitlines()
        if all(row.startswith("  ") for row in rows):
            yield code("\n".join(row[2:] for row in rows))
        elif all(re.match(r"- |  ", row) for row in rows):
            yield bullets(map(inline, re.sub(r"\n  +", " ", paragraph).removeprefix("- ").split("\n- ")))
        else:
            yield inline(" ".join(rows))


# -- chapters and terms


def chapters_index(sources: Sources) -> str:
    """Return the list of chapters, in reading order."""
    rows = [
        (str(number), link(chapter.title, f"{id_}.md"), inline(chapter.summary))
        for number, (id_, chapter) in enumerate(sources.chapters.items(), 1)
    ]
    lead = "For engineers who know PyTorch on one GPU. `ddpwizard learn` shows them with their labs."
    return page(["# Chapters", lead, table(("", "Chapter", "What it is about"), rows)])


def chapter_page(chapter: Chapter, sources: Sources) -> str:
    """Return a chapter: its pages as they are in the terminal, and its labs, without their answers."""
    parts = [f"# {inline(chapter.title)}", inline(chapter.summary)]
    parts += [code(text) for text in chapter.pages]
    if count := sum(id_ in sources.labs for id_ in chapter.labs):
        parts.append(f"`ddpwizard learn {chapter.id}` opens this chapter and its labs ({count}).")
    terms = [term_link(name, "../") for name, term in sources.knowledge.terms.items() if term.chapter == chapter.id]
    return page([*parts, "## Terms", ", ".join(terms)] if terms else parts)


def glossary_page(sources: Sources) -> str:
    """Return all terms by name, each with its chapter and causes."""
    parts = ["# Glossary", f"{len(sources.knowledge.terms)} terms. `ddpwizard explain TERM` shows one."]
    for name, term in sorted(sources.knowledge.terms.items(), key=lambda each: each[0].lower()):
        links = [link(sources.chapters[term.chapter].title, f"chapters/{term.chapter}.md")]
        links += [link(id_, f"causes/{id_}.md") for id_ in term.causes]
        also = f" Also: {', '.join(f'`{other}`' for other in term.also)}." if term.also else ""
        parts += [f"### {inline(name)} {{ #{term_anchor(name)} }}", inline(term.text) + also]
        parts.append(" · ".join(links))
    return page(parts)


def term_anchor(name: str) -> str:
    """Return the anchor of a term on the page of the glossary."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def term_link(name: str, up: str) -> str:
    """Return a link to a term from a page below ``up``."""
    return link(name, f"{up}glossary.md#{term_anchor(name)}")


# -- checks and rules


def checks_index(knowledge: Knowledge) -> str:
    """Return the list of checks."""
    rows = [
        (link(id_, f"{id_}.md"), inline(probe.title), probe.intrusiveness, f"{probe.limit_s:g} s")
        for id_, probe in knowledge.probes.items()
    ]
    lead = "`ddpwizard doctor` runs them; the wizard runs those that tell most in a case."
    return page(["# Checks", lead, table(("Check", "What it is about", "It", "Limit"), rows)])


def check_page(id_: str, probe: Probe, knowledge: Knowledge) -> str:
    """Return a check: what it may do, and what it can find with the causes for which that counts."""
    rows = [
        (f"`{id_}.{name}`", inline(text), ", ".join(_weighing(f"{id_}.{name}", knowledge)))
        for name, text in probe.findings.items()
    ]
    limits = f"It {INTRUSIVENESS[probe.intrusiveness]}, and ends after {probe.limit_s:g} s at the latest."
    return page(
        [
            f"# {inline(probe.title[0].upper() + probe.title[1:])}",
            limits,
            "## Findings",
            table(("Finding", "Meaning", "Counts for"), rows),
        ]
    )


def _weighing(finding: str, knowledge: Knowledge) -> Iterator[str]:
    for id_, cause in knowledge.causes.items():
        if weight := cause.findings.get(finding):
            yield f"{link(id_, f'../causes/{id_}.md')} ({weight})"


def rules_index(rules: dict[str, Rule]) -> str:
    """Return the list of rules."""
    rows = [(link(id_, f"{id_}.md"), rule.severity, rule.safety, inline(rule.title)) for id_, rule in rules.items()]
    lead = "`ddpwizard review` applies them to scripts and notebooks: [how](../review.md)."
    return page(["# Rules of the review", lead, table(("Rule", "Severity", "Patch", "Finds"), rows)])


def rule_page(id_: str, rule: Rule) -> str:
    """Return a rule."""
    fix = f"{rule.fix} ({rule.safety}: {rule.why_unsafe})" if rule.why_unsafe else rule.fix
    parts = [f"# {id_}: {inline(rule.title)}", f"Severity {rule.severity}, patch {rule.safety}."]
    for title, text in (("What happens", rule.why), ("How it shows", rule.symptom), ("What fixes it", fix)):
        parts += [f"## {title}", inline(text)]
    return page([*parts, f"Cause: {link(rule.cause, f'../causes/{rule.cause}.md')}"] if rule.cause else parts)


# -- the public interface


def commands_page() -> str:
    """Return the help of every command."""
    parts = ["# Commands", "The same texts as `ddpwizard COMMAND --help` and `man ddpwizard`."]
    return page([*parts, *_command_parts(group, None, "ddpwizard")])


def _command_parts(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=HELP_COLUMNS,
        max_content_width=HELP_COLUMNS,
        **command.context_settings,
    )
    yield f"## {context.command_path}"
    yield f"```text\n{click.unstyle(command.get_help(context)).rstrip()}\n```"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found
            yield from _command_parts(found, context, below)


def schemas_index() -> str:
    """Return the list of JSON documents with their schemas."""
    rows = [
        (
            link(f"ddpwizard.{kind}/1", f"{kind}.json"),
            f"`{each.command}`",
            inline(json_schema(kind)["description"]),
        )
        for kind, each in DOCUMENTS.items()
    ]
    lead = (
        "Every command with `--json` prints one document on standard output. Its `schema` names the kind. Fields may "
        "be added to a kind, none is renamed or removed."
    )
    return page(["# JSON documents", lead, table(("Document", "Command", "Content"), rows)])


# -- Markdown


def page(parts: Iterable[str]) -> str:
    """Return the parts as one page."""
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def link(text: str, target: str) -> str:
    """Return a link."""
    return f"[{inline(text)}]({target})"


def inline(text: str) -> str:
    """Return text as Markdown: what is between backticks is code, and all other signs are themselves."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(code_span(piece[1:-1]) if piece.startswith("`") else _plain(piece) for piece in pieces)


def _plain(piece: str) -> str:
    """Escape a piece of a line; blanks at its ends stay."""
    escaped = escape_markdown(piece) if piece.strip() else ""
    return " " * piece[:1].isspace() + escaped + " " * (piece[-1:].isspace() and bool(escaped))


def code_span(text: str) -> str:
    """Return text as code in a line or a table; signs are written as entities, so that none is markup."""
    return f"<code>{''.join(sign if sign.isalnum() or sign == ' ' else f'&#{ord(sign)};' for sign in text)}</code>"


def code(text: str) -> str:
    """Return lines that stay as they are."""
    return f"````text\n{text.rstrip()}\n````"


def bullets(rows: Iterable[str]) -> str:
    """Return a list of lines that are Markdown already."""
    return "\n".join(f"- {row}" for row in rows)


def table(head: Row, rows: Iterable[Row]) -> str:
    """Return a table of cells that are Markdown already."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
