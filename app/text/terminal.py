"""Terminal output: printing lines, stripping control sequences, status signs."""

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

# Control sequences of ECMA-48 and ISO 2022. The lengths are bounded, so that text behind a torn sequence is not lost.
CSI = r"[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor movement
ESCAPE = (
    rf"\x1b(?:\[{CSI}"
    r"|[\]PX^_][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)"  # strings: titles, links
    r"|[ -/]{1,4}[0-~]"  # character sets: ESC ( B
    r"|[0-Z\\-~])"  # two characters: ESC 7, ESC =, ESC M
)
SEQUENCE = re.compile(rf"{ESCAPE}|\x9b{CSI}")
ESCAPE_BYTES = re.compile(ESCAPE.encode())
CSI_8_BIT_BYTES = re.compile(rb"\xc2\x9b" + CSI.encode())
# The byte itself, where it is no part of a UTF-8 character. The literal comes first, for the speed of the search.
CSI_LATIN_1_BYTES = re.compile(rb"\x9b(?<![\x80-\xff]\x9b)" + CSI.encode())
STRING_STARTS = (b"\x1b]", b"\x1bP", b"\x1bX", b"\x1b^", b"\x1b_")
LONGEST_SEQUENCE = 512
SURROGATE = re.compile("[\ud800-\udfff]")
# A number or sign of a list, or the first column of a table.
LIST_HEAD = re.compile(r" *(?:(?:\d{1,3}|[-*•→✓✗!?–$]|OK|WARN|FAIL|UNK|SKIP) +|\S{1,16} {2,})(?=\S)")


def strip_sequences(text: str) -> str:
    """Return ``text`` without terminal control sequences."""
    return SEQUENCE.sub("", text)


def strip_sequences_bytes(data: bytes) -> bytes:
    """Return ``data`` (UTF-8, of any length) without terminal control sequences."""
    if b"\x1b" in data:
        data = ESCAPE_BYTES.sub(b"", data)
    if b"\x9b" in data:
        data = CSI_LATIN_1_BYTES.sub(b"", CSI_8_BIT_BYTES.sub(b"", data))
    return data


def split_at_sequence(chunk: bytes) -> tuple[bytes, bytes]:
    """Return the chunk without, and separately, a control sequence that may continue in the next chunk."""
    at = max(chunk.rfind(b"\x1b", -LONGEST_SEQUENCE), chunk.rfind(b"\xc2\x9b", -LONGEST_SEQUENCE))
    if at == len(chunk) - 1:  # perhaps the first half of the end of a string, ESC \
        before = chunk.rfind(b"\x1b", max(0, at - LONGEST_SEQUENCE), at)
        if before >= 0 and ESCAPE_BYTES.fullmatch(chunk[before:] + b"\\"):
            at = before
    whole = (ESCAPE_BYTES.match(chunk, at) or CSI_8_BIT_BYTES.match(chunk, at)) if at >= 0 else None
    if at < 0 or (whole and whole[0] not in STRING_STARTS):
        return chunk, b""
    return chunk[:at], chunk[at:]


class Verbatim(str):
    """A line that is never wrapped: code, a command line, a row of a machine-readable format."""

    __slots__ = ()


def indented(line: str, by: str = "  ") -> str:
    """Return a line with an indentation; a ``Verbatim`` one stays one."""
    return type(line)(by + line)


def terminal_width(stream: TextIO) -> int:
    """Return the columns of the terminal that a stream is, or 0 if it is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):  # the stream has no descriptor, or is closed
        return 0


def print_line(line: str = "") -> None:
    """Print a line of the result on stdout, without control characters; on a terminal wrapped to its width.

    Not click.echo, which writes UTF-8 even to an ASCII stream.
    """
    sys.stdout.write("\n".join(wrap_line(strip_control_of(line), terminal_width(sys.stdout))) + "\n")


def print_patch(diff: str) -> None:
    """Print a unified diff on stdout without control characters; CRLF line ends stay, as ``git apply`` needs them."""
    sys.stdout.write("\r\n".join(strip_control(part) for part in diff.split("\r\n")))


def print_progress(line: str) -> None:
    """Print a line of progress or advice on stderr; on a terminal wrapped to its width."""
    sys.stderr.write("\n".join(wrap_line(strip_control_of(line), terminal_width(sys.stderr))) + "\n")
    sys.stderr.flush()


def strip_control(text: str) -> str:
    """Return ``text`` without control sequences and control characters; newlines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        c for c in strip_sequences(encodable_text(text)) if c in "\n\t" or (c.isprintable() or c == "\u00a0")
    )


def wrap_line(line: str, width: int) -> list[str]:
    """Return a line wrapped between words to a width; 0 wraps nothing.

    What continues it is below its text, behind the number or sign of a list or the first column of a table, else
    indented by two more spaces. Words are not broken: a path or an address stays whole.
    """
    if isinstance(line, Verbatim) or not width:
        return [line]
    wrapped: list[str] = []
    for part in line.split("\n"):
        head = LIST_HEAD.match(part)
        inner = " " * (head.end() if head else len(part) - len(part.lstrip()) + 2)
        fits = len(part) <= width or len(inner) >= width
        wrapped += (
            [part]
            if fits
            else textwrap.wrap(
                part, width, subsequent_indent=inner, break_on_hyphens=False, break_long_words=False, tabsize=4
            )
        )
    return wrapped


def strip_control_of(line: str) -> str:
    """Return a line without control characters; a ``Verbatim`` one stays one."""
    return type(line)(strip_control(line))


def encodable_text(text: str) -> str:
    """Return text that can be written in UTF-8: bytes of file names that are none become replacement characters."""
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines of aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def status_glyph(status: str, ascii_only: bool) -> str:
    """Return the sign of a status, which does not depend on colour."""
    signs = {"ok": ("✓", "OK"), "warn": ("!", "WARN"), "fail": ("✗", "FAIL"), "unknown": ("?", "UNK")}
    signs |= {"skip": ("–", "SKIP"), "running": ("●", "RUN")}
    return signs[status][ascii_only]
