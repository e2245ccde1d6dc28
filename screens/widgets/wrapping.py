"""Places where a text breaks at a width, found before a line is rendered: most lines never come into view."""

from collections.abc import Callable
from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content


class Wrapped(NamedTuple):
    """The number of lines of a text, and a function that renders them."""

    height: int
    render: Callable[[], list[Content]]


def line_starts(text: str, width: int) -> list[int]:
    """Return where the lines of a text begin, the first left out. Each character is one cell wide."""
    starts: list[int] = []
    start = 0
    while len(text) - start > width:
        end = text.rfind(" ", start, start + width + 1)
        if end < 0 or not text[start:end].strip():
            start += width  # a word longer than the line
        else:
            start = end
            while text.startswith(" ", start):
                start += 1
        if start < len(text):
            starts.append(start)
    return starts


def wrap_later(content: Content, width: int) -> Wrapped:
    """Return the lines of a content at a width."""
    text = content.plain
    if "\n" in text or "\t" in text or cell_len(text) != len(text):
        lines = content.wrap(width)
        return Wrapped(len(lines), lambda: lines)
    starts = line_starts(text, width)
    return Wrapped(len(starts) + 1, lambda: [line.rstrip() for line in content.divide(starts)] if starts else [content])


def wrap_indented(content: Content, width: int, indent: int) -> Wrapped:
    """Return the lines of a content at a width, all but the first indented."""
    if content.cell_length <= width or not indent:
        return wrap_later(content, width)
    below = wrap_later(content[indent:], width - indent)
    leads = [content[:indent], *[Content(" " * indent)] * (below.height - 1)]
    return Wrapped(below.height, lambda: [lead + line for lead, line in zip(leads, below.render(), strict=True)])
