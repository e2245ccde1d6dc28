"""Lines of a scrolled text that are outside of the screen."""

from math import ceil

from textual.containers import VerticalScroll


def lines_below(scrolled: VerticalScroll) -> int:
    """Return how many lines are below those that are shown."""
    return max(0, ceil(scrolled.max_scroll_y - scrolled.scroll_offset.y))
