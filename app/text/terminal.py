"""Terminal output: printing lines, stripping control sequences, status signs."""

import re
import sys

# Colours, titles, the cursor's ways.
SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")


def print_line(line: str = "") -> None:
    """A line of the result, on stdout; control characters stay out.

    Not click.echo: it takes an ASCII stream for a mistake and writes UTF-8 all the same.
    """
    sys.stdout.write(strip_control(line) + "\n")


def print_patch(diff: str) -> None:
    """Print a unified diff on stdout without control characters; CRLF line ends stay, as ``git apply`` needs them."""
    sys.stdout.write("\r\n".join(strip_control(part) for part in diff.split("\r\n")))


def print_progress(line: str) -> None:
    """A line of progress or advice, on stderr."""
    sys.stderr.write(strip_control(line) + "\n")
    sys.stderr.flush()


def strip_control(text: str) -> str:
    """``text`` without terminal control sequences (a log may hold any)."""
    if text.isprintable():
        return text
    text = SEQUENCE.sub("", text)
    return "".join(c for c in text if c in "\n\t" or (c.isprintable() or c == "\u00a0"))


def status_glyph(status: str, ascii_only: bool) -> str:
    """The sign of a status: every state has one besides its colour."""
    signs = {"ok": ("✓", "OK"), "warn": ("!", "WARN"), "fail": ("✗", "FAIL"), "unknown": ("?", "UNK")}
    signs |= {"skip": ("–", "SKIP"), "running": ("●", "RUN")}
    return signs[status][ascii_only]
