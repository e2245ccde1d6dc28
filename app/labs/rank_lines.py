"""The table of the ranks of a lab, or a block for each row where the table is too wide."""

import textwrap
from collections.abc import Sequence

from ..text.terminal import align_columns
from ..triage.rank_groups import RankGroup, rank_groups, rank_table, short_note
from ..triage.types import JobReport

INDENT = "  "


def rank_lines(report: JobReport, width: int) -> list[str]:
    """Return the ranks of a job as lines of at most ``width`` characters, with each note in full."""
    groups = rank_groups(report)
    header, rows = rank_table(groups)
    table = align_columns([header, *rows])
    if max(map(len, table)) > width:
        return _blocks(groups, header, rows, width)
    notes = [
        line
        for group in groups
        if short_note(group.note) != group.note
        for line in ["", *textwrap.wrap(f"rank {group.ranks} {group.note}", width)]
    ]
    return table + notes


def _blocks(groups: Sequence[RankGroup], header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a block for each row: its rank, and the other columns by name."""
    names = max(map(len, header))
    lines: list[str] = []
    for group, (rank, *cells) in zip(groups, rows, strict=True):
        lines += ["", f"{header[0]} {rank.removeprefix(header[0]).strip()}"]
        for name, cell in zip(header[1:], cells, strict=True):
            text = cell.replace(short_note(group.note), group.note) if group.note else cell
            lines += textwrap.wrap(
                text,
                width,
                initial_indent=f"{INDENT}{name:<{names}}{INDENT}",
                subsequent_indent=INDENT * 2 + " " * names,
            )
    return lines[1:]
