"""Conversion of content to strips, for widgets that paint line by line."""

from rich.segment import Segment
from textual.content import Content
from textual.markup import parse_style
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

_STYLES: dict[tuple[str, int], Style] = {}


def segments(content: Content, base: Style, variables: dict[str, str]) -> list[Segment]:
    """Render one line on the style ``base``. ``variables``: colours of the theme, by name."""
    pieces = content.render(base, end="", parse_style=lambda style: _parsed(style, variables))
    return [Segment(piece, (base + style).rich_style) for piece, style in pieces]


def paint_line(widget: Widget, content: Content) -> Strip:
    """Render one line of a widget in its style, padded or cut to its width."""
    base, width = widget.visual_style, max(1, widget.size.width)
    shown = content if content.cell_length <= width else content.truncate(width, ellipsis=True)
    return Strip(segments(shown, base, widget.app.theme_variables)).extend_cell_length(width, base.rich_style)


def _parsed(style: str | Style, variables: dict[str, str]) -> Style:
    if isinstance(style, Style):
        return style
    key = (style, id(variables))
    if key not in _STYLES:
        _STYLES[key] = parse_style(style, variables)
    return _STYLES[key]
