"""Colours: a dark and a light theme, the colours of the terminal, and plain ASCII.

One accent; red and amber only for what needs attention, blue and violet only to distinguish the parts of a bar. Every
text colour has a contrast of at least 4.5:1 against the background (``tests/screens/shell/test_theme.py`` computes it).
"""

import os
from collections.abc import Mapping

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

DARK = Theme(
    name="wizard-dark",
    dark=True,
    primary="#5fc9c0",
    secondary="#5fc9c0",
    accent="#5fc9c0",
    foreground="#dde3ea",
    background="#12161b",
    surface="#12161b",
    panel="#12161b",
    success="#86cf8e",
    warning="#eab64f",
    error="#ff8078",
    variables={"muted": "#99a5b2", "rule": "#4b5763", "blue": "#7fb2f0", "violet": "#c3a6f0"},
)
LIGHT = Theme(
    name="wizard-light",
    dark=False,
    primary="#00646b",
    secondary="#00646b",
    accent="#00646b",
    foreground="#1b2127",
    background="#fcfbf8",
    surface="#fcfbf8",
    panel="#fcfbf8",
    success="#1d6b36",
    warning="#875000",
    error="#ad2118",
    variables={"muted": "#56606b", "rule": "#a3abb3", "blue": "#1d5fa8", "violet": "#6b4aa8"},
)
TERMINAL = "ansi-dark"  # the colours of the terminal
CYCLE = (DARK.name, LIGHT.name, TERMINAL)

# Variables that other themes do not have.
DEFAULTS = {"muted": "ansi_default", "rule": "ansi_default", "blue": "ansi_blue", "violet": "ansi_magenta"}


def initial_theme(environ: Mapping[str, str]) -> str:
    """Return the first theme: no colour if NO_COLOR is set, light if the terminal reports a light background."""
    if "NO_COLOR" in environ:
        return TERMINAL
    if environ.get("TEXTUAL_THEME") in (*CYCLE, "ansi-light"):
        return environ["TEXTUAL_THEME"]
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if background in ("7", "15") else DARK.name


class NoColorFilter(LineFilter):
    """Keep only weight and inversion, for NO_COLOR."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, style and style.without_color, control) for text, style, control in segments]


# One character for one character, so that the layout stays.
ASCII = str.maketrans(
    {
        **dict.fromkeys("─━–—‐‑▁▂▃", "-"),
        **dict.fromkeys("▄▅═", "="),
        "░": ".",
        **dict.fromkeys("·│┃▏▎", "|"),
        **dict.fromkeys("▍▌▋▊▉▆▇█", "#"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼", "+"),
        **dict.fromkeys("▸▶›→»", ">"),
        **dict.fromkeys("◀‹←«", "<"),
        **dict.fromkeys("•●", "*"),
        **dict.fromkeys("‘’′", "'"),
        **dict.fromkeys("“”„″", '"'),
        "↓": "v",
        "↑": "^",
        "✓": "+",
        "✗": "x",
        "×": "x",
        "÷": "/",
        "≥": ">",
        "≤": "<",
        "≈": "~",
        "…": "~",
        "−": "-",
        "µ": "u",
        "\u00a0": " ",
    }
)


def to_ascii(text: str) -> str:
    """Return ``text`` in ASCII with the same length; an unknown letter becomes ``?``."""
    return text.translate(ASCII).encode("ascii", "replace").decode()


class AsciiFilter(LineFilter):
    """Replace every other character by an ASCII one, as the last step before the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


def line_filters(ascii_only: bool) -> list[LineFilter]:
    """Return the filters that every line passes in addition to the theme."""
    found: list[LineFilter] = [NoColorFilter()] if "NO_COLOR" in os.environ else []
    return [*found, AsciiFilter()] if ascii_only else found
