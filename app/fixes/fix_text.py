"""A fix as plain lines: for the plain wizard, ``diagnose`` and the clipboard."""

from typing import Any

import msgspec

from ..text.terminal import Verbatim
from .types import Fix, commands_text, place_lines, safety_text, start_again_text


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
    for name, content in fix.files.items():
        lines += ["", f"new file {name}", *(Verbatim(f"  {line}") for line in content.splitlines())]
    return lines


def fix_document(fix: Fix) -> dict[str, Any]:
    """Return a fix for JSON: its parts, and its patches as one diff."""
    kept = (
        "id",
        "cause",
        "title",
        "safety",
        "why_unsafe",
        "text",
        "code",
        "note",
        "commands",
        "places",
        "again",
        "directory",
    )
    return {key: msgspec.to_builtins(getattr(fix, key)) for key in kept} | {"diff": fix.diff()}


def short_fix_lines(fix: Fix) -> list[str]:
    """Return what a fix comes down to: its title, its text, its lines of code or its patch, and its commands."""
    lines = [f"Fix: {fix.title}", *(f"  {line}" for line in fix.text.strip().splitlines())]
    lines += [f"    {line}" for line in place_lines(fix)]
    body = [line for line in fix.diff().splitlines() if not line.startswith("\\")] or fix.code.splitlines()
    lines += ["", *(Verbatim(f"    {line}") for line in body), ""] if body else []
    lines += [f"  {commands_text(fix)}"] if fix.commands and fix.directory else []
    lines += [Verbatim(f"  $ {command}") for command in fix.commands]
    return [*lines, f"  {start_again_text(fix)} {fix.again}"] if fix.again else lines
