"""ASCII output for terminals and pipes: typographic signs become their nearest ASCII spelling."""

import codecs
import io
import sys

SIGNS = {
    "–": "-",
    "—": "-",
    "…": "...",
    "×": "x",
    "÷": "/",
    "·": "|",
    "→": "->",
    "←": "<-",
    "≥": ">=",
    "≤": "<=",
    "≈": "~",
    "“": '"',
    "”": '"',
    "’": "'",
    "‘": "'",
    "‹": "<",
    "›": ">",
    "µ": "u",
    "°": "",
    "−": "-",
    "\u00a0": " ",
    "✓": "OK",
    "✗": "FAIL",
    "●": "RUN",
    "█": "#",
    "▸": ">",
    "◀": "<",
    "↓": "v",
    "↑": "^",
    "─": "-",
    "│": "|",
    "═": "=",
    "░": ".",
    **dict.fromkeys("┌┐└┘├┤┬┴┼", "+"),
}
TABLE = str.maketrans(SIGNS)


def to_ascii(text: str) -> str:
    """Return ``text`` in ASCII; a letter without a spelling becomes ``?``. The length may change."""
    return text.translate(TABLE).encode("ascii", "replace").decode()


def ascii_output() -> None:
    """Spell everything printed on stdout and stderr in ASCII from now on."""
    codecs.register_error("ddpwizard-ascii", _ascii_spelling)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="ascii", errors="ddpwizard-ascii")


def _ascii_spelling(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return to_ascii(error.object[error.start : error.end]), error.end
