"""The output of the ranks side by side, one pane for each; one below the other where there is no room."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from textual.content import Content

from ...app.labs.rank_output import printer_name
from ..widgets.formatting import join_lines, safe_content

LEAST_WIDTH = 36  # of a pane
GAP = 2
MOST_LINES = 1_000  # of a rank, where all are shown


def rank_panes(printed: Mapping[int | None, Sequence[str]], launch: str, width: int, height: int | None) -> Content:
    """Render what each rank of the job that ``launch`` started has printed, and the lines of its launcher below.

    ``height``: that of the screen, for the last lines that fit; None for all.
    """
    ranks, across, pane = _arrange(printed, width)
    launcher = [safe_content(line, "$muted") for line in printed.get(None, ())][-MOST_LINES:]
    if height and launcher:
        launcher = launcher[-max(1, height // 3 - 1) :]
    if launcher:
        launcher = [safe_content(printer_name(None, launch), "bold $accent"), *launcher]
    lines_each = MOST_LINES
    if height:
        lines_each = max(3, (height - len(launcher)) // -(-max(1, len(ranks)) // across) - 1)
    rows: list[Content] = []
    for first in range(0, len(ranks), across):
        shown = ranks[first : first + across]
        columns = [_pane(rank, printed[rank], pane, lines_each) for rank in shown]
        for cells in zip_longest(*columns, fillvalue=Content("")):
            rows.append(Content.assemble(*(_padded(cell, pane + GAP) for cell in cells)))
    return join_lines(*rows, *launcher) if rows or launcher else Content("")


def row_of_line(printed: Mapping[int | None, Sequence[str]], rank: int, at: int, width: int) -> int:
    """Return the row of the line ``at`` of a rank, counted from 0, where all lines are shown."""
    ranks, across, pane = _arrange(printed, width)
    first = ranks.index(rank) // across * across
    above = 0
    for at_first in range(0, first, across):
        above += max(len(_pane(each, printed[each], pane, MOST_LINES)) for each in ranks[at_first : at_first + across])
    shown = _pane(rank, printed[rank], pane, MOST_LINES)
    below = sum(len(safe_content(line).wrap(pane)) for line in printed[rank][at:])
    return above + max(0, len(shown) - below)


def _arrange(printed: Mapping[int | None, Sequence[str]], width: int) -> tuple[list[int], int, int]:
    """Return the ranks, how many of their panes are side by side, and the width of a pane."""
    ranks = sorted(rank for rank in printed if rank is not None)
    across = max(1, min(len(ranks), (width + GAP) // (LEAST_WIDTH + GAP)))
    return ranks, across, (width - GAP * (across - 1)) // across


def _pane(rank: int, lines: Sequence[str], width: int, height: int) -> list[Content]:
    shown: list[Content] = []
    for line in reversed(lines):
        parts = safe_content(line).wrap(width)
        if len(shown) + len(parts) > height:
            shown = shown or parts[:height]  # a line that is longer than the pane, from its start
            break
        shown = [*parts, *shown]
    return [safe_content(f"rank {rank}", "bold $accent"), *shown]


def _padded(cell: Content, width: int) -> Content:
    return Content.assemble(cell, " " * max(0, width - cell.cell_length))
