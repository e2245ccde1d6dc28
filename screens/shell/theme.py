"""Colours: our own dark and light theme, the terminal's own colours, and plain ASCII.

One accent; red and amber only for what needs a person, blue and violet only to tell the parts of a bar apart. Every
text colour stands at 4.5:1 or better against the background (``tests/screens/test_theme.py`` computes it).
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
TERMINAL = "ansi-dark"  # the terminal's own colours, whatever they are
CYCLE = (DARK.name, LIGHT.name, TERMINAL)

# Variables a theme that is not ours does not have.
DEFAULTS = {"muted": "ansi_default", "rule": "ansi_default", "blue": "ansi_blue", "violet": "ansi_magenta"}


def initial_theme(environ: Mapping[str, str]) -> str:
    """The theme to begin with: no colour where NO_COLOR asks for it, light where the terminal says it is light."""
    if "NO_COLOR" in environ:
        return TERMINAL
    if environ.get("TEXTUAL_THEME") in (*CYCLE, "ansi-light"):
        return environ["TEXTUAL_THEME"]
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if background in ("7", "15") else DARK.name


class NoColorFilter(LineFilter):
    """Leave only weight and inversion, for NO_COLOR."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, style and style.without_color, control) for text, style, control in segments]


# One character for one character, so that nothing moves.
ASCII = str.maketrans(
    {
        **dict.fromkeys("─━–—‐‑▁▂▃", "-"),
        **dict.fromkeys("▄▅", "="),
        **dict.fromkeys("·│┃▏▎", "|"),
        **dict.fromkeys("▍▌▋▊▉▆▇█", "#"),
        **dict.fromkeys("▸▶›→»", ">"),
        **dict.fromkeys("◀‹←«", "<"),
        **dict.fromkeys("•●", "*"),
        **dict.fromkeys("‘’′", "'"),
        **dict.fromkeys("“”„″", '"'),
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
    """``text`` in ASCII, as long as before; a letter we have no sign for becomes ``?``."""
    return text.translate(ASCII).encode("ascii", "replace").decode()


class AsciiFilter(LineFilter):
    """Put an ASCII sign in the place of every other character, the last thing before the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


def line_filters(ascii_only: bool) -> list[LineFilter]:
    """What is done to every line beside the theme."""
    found: list[LineFilter] = [NoColorFilter()] if "NO_COLOR" in os.environ else []
    return [*found, AsciiFilter()] if ascii_only else found
