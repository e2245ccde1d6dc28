"""Formatting of text on screens. Nothing here is interpreted as markup."""

from functools import cache

from textual.content import Content

from ...app.text.terminal import status_glyph, strip_control
from ...app.text.units import probability_text

STATUS_STYLE = {
    "ok": "$success",
    "warn": "$warning",
    "fail": "$error",
    "unknown": "$warning",
    "skip": "$muted",
    "running": "$accent",
}
EIGHTHS = " ▏▎▍▌▋▊▉"


def safe_content(value: str, style: str = "") -> Content:
    """Return untrusted text as content, without control sequences and markup."""
    return Content.styled(strip_control(value), style)


@cache
def status_sign(status: str, ascii_only: bool) -> Content:
    """Return the sign of a status in its colour; four letters wide in ASCII."""
    sign = status_glyph(status, ascii_only)
    return Content.styled(sign.ljust(4) if ascii_only else sign, STATUS_STYLE[status])


def share_bar(share: float, width: int) -> str:
    """Return a bar of ``width`` cells for a share of 0 to 1, in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[part] if part else "")).ljust(width)


def probability_cell(share: float) -> str:
    """``62%``, right-aligned in five cells."""
    return probability_text(share).rjust(5)


def truncate_middle(value: str, width: int) -> str:
    """Shorten a path in its middle to ``width``; most of the room goes to its end."""
    if len(value) <= width:
        return value
    if width < 4:
        return value[-width:]
    head = (width - 1) // 3
    return value[:head] + "…" + value[-(width - 1 - head) :]


def justify_two(left: Content, right: Content, width: int) -> Content:
    """Put two texts on one line, ``right`` at its end; without room for both, only the left one is shown."""
    space = width - left.cell_length - right.cell_length
    if space < 2:
        room = width - right.cell_length - 2
        if room < min(24, left.cell_length):
            return left.truncate(width, ellipsis=True)
        return Content.assemble(left.truncate(room, ellipsis=True), "  ", right)
    return Content.assemble(left, " " * space, right)


def join_lines(*parts: Content) -> Content:
    """Put each part on its own line."""
    return Content("\n").join(parts)
