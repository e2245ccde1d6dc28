"""A cause as text for people."""

from typing import Literal, NamedTuple

import msgspec

from ...knowledge.schema import Cause, Clue, FixSpec, Knowledge
from ...knowledge.templates import fill_template
from ..text.terminal import Verbatim, indented

LineKind = Literal["text", "item", "detail", "code"]
BULLET = "- "
WEIGHT_WIDTH = 9


class EntryLine(NamedTuple):
    """One line, or one paragraph of prose with its line breaks. ``weight`` is how much an observation counts.

    A ``detail`` is prose that belongs to the item above it.
    """

    text: str
    kind: LineKind = "text"
    weight: str = ""


class EntrySection(NamedTuple):
    """A heading and its lines."""

    title: str
    lines: list[EntryLine]


def cause_sections(cause: Cause, knowledge: Knowledge) -> list[EntrySection]:
    """Return everything known about a cause below its title and summary, in reading order."""
    fixes: list[EntryLine] = []
    for fix in cause.fixes:
        fixes.append(
            EntryLine(
                fill_template(fix.title, {}) + (f" ({fix.safety}: {fix.why_unsafe})" if fix.why_unsafe else ""), "item"
            )
        )
        fixes += _fix_lines(fix)
    versions = ", ".join(f"{name} {versions}" for name, versions in cause.holds_for.items())
    sections = [
        EntrySection("Symptoms", [EntryLine(symptom, "item") for symptom in cause.symptoms]),
        EntrySection("What happens", [EntryLine(cause.explain.strip())]),
        EntrySection("Fixes", fixes),
        EntrySection("Evidence for and against it", _weights(cause, knowledge)),
        EntrySection(
            "Differences from similar causes",
            [EntryLine(f"{other}: {what}", "item") for other, what in cause.tells_apart.items()],
        ),
        EntrySection(
            "What older advice recommends instead",
            [EntryLine(f"since {change.since}: {change.what}", "item") for change in cause.changed],
        ),
        EntrySection("Applies to", [EntryLine(versions)]),
        EntrySection(
            "Sources", [EntryLine(f"{s.title} (checked: {s.checked})  {s.url}", "item") for s in cause.sources]
        ),
        EntrySection("See also", [EntryLine(", ".join(cause.see_also))] if cause.see_also else []),
    ]
    return [section for section in sections if section.lines]


def cause_lines(cause: Cause, knowledge: Knowledge) -> list[str]:
    """Return an entry as plain lines with headings in capitals."""
    lines = [cause.title, f"{cause.family} / {cause.id}", "", cause.summary]
    for section in cause_sections(cause, knowledge):
        lines += ["", section.title.upper()]
        lines += [indented(row) for line in section.lines for row in _rows(line)]
    return lines


def clue_text(clue: Clue) -> str:
    """Return the terms of a clue: ``“two nodes”, “hang” or “stuck”``."""
    return ", ".join(" or ".join(f"“{part.strip()}”" for part in term.split("|")) for term in clue.all)


def _weights(cause: Cause, knowledge: Knowledge) -> list[EntryLine]:
    findings = knowledge.findings()
    lines = [EntryLine(findings[id_], weight=weight) for id_, weight in cause.findings.items()]
    for question, answers in cause.questions.items():
        spec = knowledge.questions[question]
        lines += [EntryLine(f"{spec.ask} {spec.answers[answer]}", weight=weight) for answer, weight in answers.items()]
    lines += [EntryLine(f"log line: {signature.pattern}", weight=signature.weight) for signature in cause.signatures]
    return [*lines, *(EntryLine(f"words: {clue_text(clue)}", weight=clue.weight) for clue in cause.clues)]


def _fix_lines(fix: FixSpec) -> list[EntryLine]:
    """Return the prose and the code of a fix, the code with a blank line around it."""
    text, code, note = (fill_template(part, {}).rstrip() for part in (fix.text, fix.code, fix.note))
    lines = [EntryLine(text, "detail")] if text else []
    if code:
        lines += [EntryLine(""), *(EntryLine(line, "code") for line in code.splitlines()), EntryLine("")]
    return [*lines, EntryLine(note, "detail")] if note else lines


def fill_fallbacks(cause: Cause) -> Cause:
    """Return an entry as it reads without a case: each fact in its fixes is replaced by its fallback."""
    fixes = [
        msgspec.structs.replace(
            fix, **{key: fill_template(getattr(fix, key), {}) for key in ("title", "text", "code", "note")}
        )
        for fix in cause.fixes
    ]
    return msgspec.structs.replace(cause, fixes=fixes)


def _rows(line: EntryLine) -> list[str]:
    if line.kind == "item":
        return [BULLET + line.text]
    if line.kind == "code":
        return [Verbatim("    " + line.text)]
    if line.kind == "detail":
        return ["  " + row for row in line.text.splitlines()]
    weight = f"{line.weight:<{WEIGHT_WIDTH}} " if line.weight else ""
    return [weight + row for row in line.text.splitlines()] or [""]
