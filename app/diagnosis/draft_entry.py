"""Draft a knowledge entry from a session: its descriptions, its error lines, its findings.

The parts that the author must add (why it happens, how to fix it) are marked; ``kb check`` reports every mark left.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from ...knowledge.schema import NATS, UNFINISHED, Knowledge
from ..evidence import Evidence, signature_id
from ..logs.analyse import analyse_logs
from ..logs.read import source_of_text

MOST_LINES = 40
MOST_SIGNATURES = 3
LEAST_LITERAL = 8
LINE_LIMIT = 300
# An error line: the end of a traceback, or a word that loggers and launchers use for errors.
ERROR = re.compile(
    r"^(?:\S{1,60}[:|] +)?(?:[A-Za-z_]{1,40}\.){0,6}[A-Z][A-Za-z]{1,40}(?:Error|Exception|Interrupt|Exit)\b"
    r"|\b(?:ERROR|FATAL|CRITICAL|NCCL WARN|[Ee]rror:|failed|abort(?:ed|ing)|Segmentation fault|Killed)\b"
)
# Prefixes of loggers: ranks, times, levels, hosts. Not part of the signature.
PREFIX = re.compile(
    r"^(?:\[[^\]\n]{1,60}\]:?\s*|\d{4}-\d\d-\d\d[T ][\d:.,]{8,15}Z?\s*|[\w.-]{1,60}:\d{1,7}:\d{1,7}\s+|\d{1,4}:\s+)+"
)
VARIABLE = re.compile(
    r"\b[A-Za-z][\w-]*(?:\.[\w-]+)*:\d{2,5}\b|0x[0-9a-fA-F]+|(?:/[\w.@+~-]+){2,}/?|\b[0-9a-f]{12,}\b|\d+(?:[.:]\d+)*"
)


class EntryDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a new entry. ``lines`` are (where, text) of error lines."""

    id: str
    title: str
    words: Sequence[str]
    lines: Sequence[tuple[str, str]]
    findings: Sequence[str]
    answers: Sequence[tuple[str, str]]
    instead_of: Sequence[str]
    origin: str


def error_lines(text: str, origin: str) -> list[tuple[str, str]]:
    """Return (where, line) of the error lines of a text: each kind once, at most ``MOST_LINES``."""
    found: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > 2000 or not ERROR.search(line):
            continue
        pattern, _ = signature_of_line(line)
        found.setdefault(pattern, (f"{origin}:{number}", line.strip()[:LINE_LIMIT]))
        if len(found) == MOST_LINES:
            break
    return list(found.values())


def signature_of_line(line: str) -> tuple[str, str]:
    """Return (pattern, literal) that match this line with other numbers, addresses and paths, and without its prefix.

    The literal is the longest constant part; it may be too short to be useful.
    """
    bare = PREFIX.sub("", line.strip())[:LINE_LIMIT]
    kept: list[str] = []
    pattern = ""
    end = 0
    for part in VARIABLE.finditer(bare):
        kept.append(bare[end : part.start()])
        pattern += _escaped(kept[-1]) + _any_like(part[0])
        end = part.end()
    kept.append(bare[end:])
    return pattern + _escaped(kept[-1]), max((piece.strip() for piece in kept), key=len)


def _escaped(text: str) -> str:
    return re.escape(text).replace("\\ ", " ")


def _any_like(part: str) -> str:
    if re.fullmatch(r"[A-Za-z].*:\d+", part):  # a host and its port
        return r"[\w.-]+:\d+"
    if part.startswith("0x"):
        return "0x[0-9a-fA-F]+"
    if part.startswith("/"):
        return r"/\S{1,300}"
    return r"[\d.:]+" if part.replace(".", "").replace(":", "").isdigit() else "[0-9a-f]+"


def render_entry(draft: EntryDraft, knowledge: Knowledge) -> str:
    """Render the YAML text of the new entry."""
    roots = _roots(knowledge)
    new = [(where, line) for where, line in draft.lines if not _known(line, where, knowledge, roots)]
    signatures = [(where, *signature_of_line(line)) for where, line in new]
    usable = [row for row in signatures if len(row[2]) >= LEAST_LITERAL][:MOST_SIGNATURES]
    rows = [
        f"# Drafted by ddpwizard kb new from {draft.origin}. Complete it, then run: ddpwizard kb check DIRECTORY",
        f"id: {draft.id}",
        f"title: {yaml_text(draft.title)}",
        "family: hang  # launch, ddp, fsdp, zero, hang, nccl, elastic, memory or performance",
        f"summary: {UNFINISHED} one sentence on what goes wrong.",
        "symptoms:  # as people would type it into a search engine; six or more find it best",
        *(f"  - {yaml_text(words)}" for words in draft.words or [PREFIX.sub("", line) for _, line in new[:1]]),
        f"  - {UNFINISHED} what a person sees who has this problem.",
    ]
    rows += _examples(draft)
    if usable:
        rows.append("signatures:  # log lines that show it; numbers and paths may differ")
    for where, pattern, literal in usable:
        rows += [
            f"  # {where}",
            f"  - pattern: {yaml_text(pattern)}",
            f"    literal: {yaml_text(literal)}",
            "    weight: strong",
        ]
    if draft.findings:
        rows += ["findings:", *(f"  {id_}: moderate" for id_ in draft.findings)]
    if draft.answers:
        rows += ["questions:", *(f"  {question}: {{{answer}: moderate}}" for question, answer in draft.answers)]
    rows += [
        "explain: |",
        f"  {UNFINISHED} what happens, why, and how to see it.",
        "fixes:",
        "  - id: as-we-did",
        "    kind: text",
        "    title: The fix that worked",
        f"    text: {UNFINISHED} what was done.",
        "verify: {probe: job, seen: [job.all-ranks-moved]}",
        'holds_for: {torch: ">=2.0"}  # the versions it was seen with',
        "sources:",
        f"  - title: {yaml_text(draft.origin)}",
        f"    url: {yaml_text('session:' + draft.id)}",
        "    checked: seen once",
    ]
    others = [other for other in draft.instead_of if other in knowledge.causes]
    if others:
        rows += ["tells_apart:", *(f"  {other}: there {UNFINISHED}; here {UNFINISHED}" for other in others)]
    return "\n".join(rows) + "\n"


def _examples(draft: EntryDraft) -> list[str]:
    """Return the field of what must lead to the entry: the descriptions, and the error lines as they were."""
    rows = [f"  - {yaml_text(words)}" for words in draft.words]
    lines = [line for _, line in draft.lines]
    if lines:
        rows += (
            ["  - |-", *(f"    {line}" for line in lines)]
            if all(map(str.isprintable, lines))
            else [f"  - {yaml_text(chr(10).join(lines))}"]
        )
    return (
        ["examples:  # descriptions and logs that must lead to it: ddpwizard kb check reads them", *rows]
        if rows
        else []
    )


def build_draft(
    id_: str, origin: str, words: Sequence[str], lines: Iterable[tuple[str, str]], evidence: Iterable[Evidence]
) -> EntryDraft:
    """Build a draft from a case: descriptions (``words``), error ``lines``, and the findings of probes and answers."""
    items = list(evidence)
    answers = [item.id.removeprefix("answer:").partition("=") for item in items if item.id.startswith("answer:")]
    return EntryDraft(
        id=id_,
        title=next(iter(words), id_.replace("-", " ")).strip().capitalize()[:80],
        words=[word[:160] for word in words],
        lines=list(lines),
        findings=sorted({item.id for item in items if item.source in ("probe", "job", "review")}),
        answers=sorted((question, answer) for question, _, answer in answers),
        instead_of=sorted({item.id.removeprefix("rejected:") for item in items if item.id.startswith("rejected:")}),
        origin=origin,
    )


def _roots(knowledge: Knowledge) -> set[str]:
    """Return the ids of the signatures that support a cause."""
    return {
        signature_id(cause, index)
        for cause in knowledge.causes.values()
        for index, signature in enumerate(cause.signatures)
        if signature.role == "root" and NATS[signature.weight] > 0
    }


def _known(line: str, where: str, knowledge: Knowledge, roots: set[str]) -> bool:
    """Return whether the knowledge base already has a message or a root signature for this line."""
    found = analyse_logs([source_of_text(line, where)], knowledge).evidence
    return any(item.id in roots or item.id.startswith("message:") for item in found)


def yaml_text(value: str) -> str:
    """Quote a YAML string (JSON strings are valid YAML)."""
    return msgspec.json.encode(value).decode()
