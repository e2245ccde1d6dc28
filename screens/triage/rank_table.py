"""The rank table, source lines and stacks of a job, rendered for a screen."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from textual.content import Content

from ...app.system.paths import relative_to_cwd
from ...app.text.terminal import strip_control
from ...app.triage import rank_details
from ...app.triage.rank_groups import CodeLine, RankGroup, group_cells, ranks_label, source_excerpt
from ...app.triage.types import JobReport
from ..widgets.choices import Choice
from ..widgets.formatting import safe_content, truncate_middle

NAMES_FROM = 70  # columns from which function names are shown
WIDE_FROM = 108  # columns from which all columns are shown
STATE_STYLE = {
    "running": "$success",
    "starting": "$accent",
    "waiting": "",
    "blocked_io": "$warning",
    "stopped": "$warning",
    "unreadable": "$warning",
    "dead": "$error",
    "zombie": "$error",
    "missing": "$error",
}
CULPRIT = "! "
LEAST_WHERE, RANK_WIDTH = 10, 11


class Column(NamedTuple):
    """One column: its name, its width including the gap, and whether it is right-aligned."""

    name: str
    width: int
    right: bool = False


class RankTable:
    """The columns that fit ``width`` and are not empty, as wide as these groups need.

    ``processes``: shown instead of the place, for ranks that are all at the same one.
    """

    def __init__(self, groups: Sequence[RankGroup], width: int, processes: Mapping[int, str] | None = None) -> None:
        self.width, self.names = width, width >= NAMES_FROM
        self._processes = processes
        self._lead = " " * len(CULPRIT) if any(group.culprit for group in groups) else ""
        cells = [_cells(group) | {"state": self._state(group)} for group in groups]

        def column(name: str, least: int, most: int, right: bool = False) -> Column:
            return Column(name, _column_width([row[name] for row in cells], least, most), right)

        optional = [
            column("group", 5, 14),
            column("seq", 3, 11, True),
            column("CPU", 4, 8, True),
            column("GPU", 4, 8, True),
            column("memory", 6, 9, True),
            column("I/O", 4, 11, True),
        ]
        known = {name for row in cells for name, value in row.items() if value}
        after = [
            column("call", 10, 24 if self.names else 12),
            *(each for each in optional if width >= WIDE_FROM and each.name in known),
            Column("last moved", 12, True) if self.names else Column("moved", 9, True),
        ]
        before = [column("rank", 6, 12), column("state", 9, 13)]
        where = max(LEAST_WHERE, width - sum(each.width for each in before + after))
        if width >= WIDE_FROM:  # keep the columns close together
            where = min(where, _column_width([self._where(g, where) for g in groups], LEAST_WHERE, where) + 2)
        self.columns = [*before, Column("where" if processes is None else "process", where), *after]
        self._styled = sum(each.width for each in before)

    def header(self) -> Content:
        """Return the names of the columns."""
        cells = "".join(_cell(column.name, column) for column in self.columns).rstrip()
        return Content.styled(cells[: self.width], "$muted")

    def row(self, group: RankGroup, id_: str) -> Choice:
        """Return a group as a row."""
        cells = _cells(group) | {"state": self._state(group)}
        cells["where"] = cells["process"] = self._where(group, self.columns[2].width - 1)
        style = "$warning" if group.culprit and group.state == "waiting" else STATE_STYLE.get(group.state, "")
        text = strip_control("".join(_cell(cells[column.name], column) for column in self.columns).rstrip())[
            : self.width
        ]
        return Choice(id_, Content.assemble((text[: self._styled], style), text[self._styled :]))

    def _state(self, group: RankGroup) -> str:
        return (CULPRIT if group.culprit else self._lead) + group_cells(group)["state"]

    def _where(self, group: RankGroup, room: int) -> str:
        if self._processes is not None:
            return truncate_middle(self._processes.get(group.members[0], ""), room)
        if not group.where:
            note = group.note.removeprefix("stack: ") or "–"
            return note if len(note) <= room else note[: room - 1] + "…"
        whole = f"{group.where}  {group.function}" if self.names and group.function else group.where
        return truncate_middle(whole if len(whole) <= room else group.where, room)


def ranks_text(group: RankGroup) -> str:
    """Return ``1–3``, or ``512 ranks`` if the numbers do not fit."""
    return group_cells(group, RANK_WIDTH)["rank"]


def source_of_ranks(report: JobReport, width: int, at: str | None = None) -> list[Content]:
    """Return the lines of the ranks and the condition above them; those around ``at`` if it is another place."""
    return annotated_source(source_excerpt(report, at), width)


def annotated_source(found: Iterable[CodeLine], width: int) -> list[Content]:
    """Render lines of source with the ranks at each."""
    rows: list[Content] = []
    for line in found:
        if line.number is None:
            rows.append(
                safe_content(truncate_middle(relative_to_cwd(line.text), width), "bold")
                if line.text
                else Content.styled("      …", "$muted")
            )
            continue
        lead = ("▸" if line.mark else " ", "$accent bold"), (f"{line.number:>5}  ", "$muted")
        tail = safe_content(f"  ◀ {line.mark}", "$warning" if line.culprit else "$accent") if line.mark else Content("")
        shown = safe_content(line.text.expandtabs(4), "bold" if line.mark else "")
        room = max(8, width - 8 - tail.cell_length)
        rows.append(Content.assemble(*lead, shown.truncate(room, ellipsis=True), tail))
    return rows


def stacks_of_ranks(report: JobReport, ranks: Iterable[int], width: int) -> list[Content]:
    """Render the distinct stacks of these ranks, each under its ranks, innermost frame first."""
    rows: list[Content] = []
    for stack in rank_details.distinct_stacks(report, ranks):
        rows.append(safe_content(_named(report, stack.ranks), "bold"))
        if stack.note:
            rows += safe_content(f"  {stack.note}", "$warning").wrap(width)
        rows += [detail_line(line, width) for line in rank_details.frame_lines(stack.frames)]
        rows.append(Content(""))
    return rows or [Content("No stack was read.")]


def detail_line(line: rank_details.DetailLine, width: int) -> Content:
    """Render a line of the page of a rank, with its annotation in a quieter colour."""
    if not line.annotation:
        return safe_content(f"  {line.text}").truncate(width, ellipsis=True)
    left = safe_content(f"  {line.text:<26}  ")
    path, colon, number = line.annotation.rpartition(":")
    shown = f"{relative_to_cwd(path)}{colon}{number}" if colon else line.annotation
    return Content.assemble(left, safe_content(truncate_middle(shown, max(16, width - left.cell_length)), "$muted"))


def _named(report: JobReport, ranks: Sequence[int]) -> str:
    named = ranks_label(ranks, 60)
    row = rank_details.find_row(report, ranks[0])
    pid = f", pid {row.pid}" if row and row.pid and len(ranks) == 1 else ""
    return f"{named}{pid}, {row.state if row else ''}"


def _cells(group: RankGroup) -> dict[str, str]:
    cells = group_cells(group, RANK_WIDTH)
    return cells | {"call": group.collective, "moved": cells["last moved"]}


def _column_width(values: Iterable[str], least: int, most: int) -> int:
    """Return the width of a column of these values, including a gap."""
    return min(most, max([least, *(len(value) for value in values)])) + 1


def _cell(value: str, column: Column) -> str:
    room = column.width - 1
    value = value if len(value) <= room else value[: room - 1] + "…"
    return f"{value:>{room + 1}}" if column.right else f"{value:<{room}} "
