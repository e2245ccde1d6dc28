"""A fix as plain lines: for the plain wizard, ``diagnose`` and the clipboard."""

import re
from typing import Any

import msgspec

from ...knowledge.schema import Safety
from ..text.json_output import fields_from
from ..text.terminal import Verbatim
from .types import Fix, Place, commands_text, place_lines, safety_text, start_again_text

# Words in code and commands that only the user can replace.
PLACEHOLDERS = re.compile(
    r"(?<![\w$.])(?:COMMAND|IMAGE|MODEL|ORG/MODEL|PID|WORKER_PID|HOST0?|JOB|IFACE|DIRECTORY|CHECKPOINT|UNIVERSAL|SCRIPT)(?![\w.=])"
)


class FixDocument(msgspec.Struct):
    """A fix: prose around code, commands, the places it is about, and its patches as one diff."""

    id: str
    cause: str
    title: str
    safety: Safety
    why_unsafe: str
    text: str
    code: str
    note: str
    commands: list[str]
    places: list[Place]
    again: str
    directory: str
    diff: str


def fix_lines(fix: Fix) -> list[str]:
    """Return a fix without its patches as lines: title, safety, text, places, code, commands, new files."""
    lines = [fix.title, f"  {safety_text(fix)[1]}", *fix.text.strip().splitlines()]
    lines += ["", *(f"  {line}" for line in place_lines(fix))] if fix.places else []
    if fix.code:
        lines += ["", *(Verbatim(f"    {line}") for line in fix.code.splitlines()), ""]
    lines += fix.note.splitlines()
    lines += [start_again_text(fix), Verbatim(f"  {fix.again}")] if fix.again else []
    lines += [commands_text(fix)] if fix.commands and fix.directory else []
    lines += [Verbatim(f"  $ {command}") for command in fix.commands]
    lines += _to_replace(fix, lines)
    for name, content in fix.files.items():
        lines += ["", f"new file {name}", *(Verbatim(f"  {line}") for line in content.splitlines())]
    return lines


def fix_document(fix: Fix) -> dict[str, Any]:
    """Return a fix for JSON."""
    fields = fields_from(fix, FixDocument)
    fields["diff"] = fix.diff()
    return msgspec.to_builtins(FixDocument(**fields))


def short_fix_lines(fix: Fix) -> list[str]:
    """Return what a fix comes down to: its title, its text, its lines of code or its patch, and its commands."""
    lines = [f"Fix: {fix.title}", *(f"  {line}" for line in fix.text.strip().splitlines())]
    lines += [f"    {line}" for line in place_lines(fix)]
    body = [line for line in fix.diff().splitlines() if not line.startswith("\\")] or fix.code.splitlines()
    lines += ["", *(Verbatim(f"    {line}") for line in body), ""] if body else []
    lines += [f"  {commands_text(fix)}"] if fix.commands and fix.directory else []
    lines += [Verbatim(f"  $ {command}") for command in fix.commands]
    lines += [f"  {line}" for line in _to_replace(fix, lines)]
    return [*lines, f"  {start_again_text(fix)} {fix.again}"] if fix.again else lines


def _to_replace(fix: Fix, shown: list[str]) -> list[str]:
    """Return the line that names the words to replace before the code runs, except those that other lines explain."""
    to_run = [*fix.code.splitlines(), *fix.commands]
    prose = " ".join([*(line for line in shown if line.strip(" $") not in to_run), *re.findall(r"#.*", fix.code)])
    words = {word: None for line in to_run for word in PLACEHOLDERS.findall(line.partition("#")[0])}
    open_words = [word for word in words if not re.search(rf"\b{word}\b", prose)]
    return [f"Replace before you run it: {', '.join(open_words)}."] if open_words else []
