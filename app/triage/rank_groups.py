"""Display data of a job's report: ranks at the same place as one row, and the source around their lines.

The data is plain, rendered by the screens and the command.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..launchers.recognise import is_multiprocessing_spawn, parse_python
from ..text import redact
from ..text.units import bytes_text, count_text, rank_ranges, seconds_text
from . import phrases
from .rank_activity.frames import user_frames
from .types import JobReport, ProcessSamples, RankRow

AROUND = 1  # lines shown before and after a line of interest
SHOWN_CHILDREN = 3
SHOWN_PLACES = 4  # places of source shown at most
COLUMNS = ("rank", "state", "where", "call", "last moved")
RESOURCE_COLUMNS = ("group", "seq", "CPU", "GPU", "memory", "I/O")
MOVING = ("running", "starting")
CAUSE = "cause"  # the mark of the line that separates the ranks
NOTE_WIDTH = 48  # a longer note is shortened in the table
NAMED_WIDTH = 24  # if the numbers of ranks take more characters, the ranks are counted


class RankGroup(NamedTuple):
    """Ranks in the same state at the same place.

    ``since`` is a lower bound ("≥ 3 s") unless it is from the Flight Recorder or a log; it is empty if they make
    progress. Values that differ within the group are ranges; values that were not read are empty.
    """

    ranks: str
    state: str
    where: str
    function: str
    collective: str
    since: str
    culprit: bool
    note: str
    members: tuple[int, ...] = ()
    group: str = ""
    seq: str = ""
    cpu: str = ""
    gpu: str = ""
    memory: str = ""
    io: str = ""
    moves_now: bool = False  # seen in samples; a dump or a log is of the past


class ResourceUse(NamedTuple):
    """Resource use of a rank between its last two samples. None: not known."""

    cpu_percent: float | None = None
    gpu_percent: int | None = None
    memory_bytes: int | None = None
    io_bytes_per_s: float | None = None


class CodeLine(NamedTuple):
    """One line of source; ``number`` is None for omitted lines and for the name of a file.

    ``mark`` names the ranks that are there, and the line of the cause.
    """

    number: int | None
    text: str
    mark: str = ""
    culprit: bool = False


def job_title(report: JobReport) -> str:
    """Return ``train.py · 4 ranks · torchrun (pid 4711)``."""
    script = script_name(report)
    count = f"{report.world_size} ranks" if report.world_size != 1 else "1 process"
    launcher = f"{report.launcher} (pid {report.job.launcher_pid})" if report.job.launcher_pid else report.launcher
    return " · ".join(part for part in (script, count, launcher) if part)


def script_name(report: JobReport) -> str:
    """Return the name of the job's script, or ""."""
    commands = [*(process.command for process in report.job.processes), report.job.launcher_command]
    command = next((each for each in commands if each and not is_multiprocessing_spawn(each)), [])
    is_python = bool(command) and Path(command[0]).name.startswith(("python", "pypy"))
    python = parse_python(command) if is_python else None
    return Path(python.target).name if python else ""


def rank_groups(report: JobReport, only: Iterable[int] | None = None, *, alone: bool = False) -> list[RankGroup]:
    """Group the ranks (``only`` these, if given) by state and place, culprits first.

    ``alone``: one group for each rank.
    """
    wanted = None if only is None else set(only)
    rows = [row for row in report.ranks if wanted is None or row.rank in wanted]
    seen = {(each.host, each.process.pid): each for each in report.observed.seen}
    return group_rows(rows, report.verdict.culprits, seen, alone=alone)


def group_rows(
    rows: Iterable[RankRow],
    culprits: Collection[int],
    seen: Mapping[tuple[str, int], ProcessSamples] | None = None,
    *,
    alone: bool = False,
) -> list[RankGroup]:
    """Group rows as ``rank_groups`` does; ``seen`` has the samples of a process by host and pid."""
    groups: dict[object, list[RankRow]] = defaultdict(list)
    culprit_ranks = set(culprits)  # a job may claim 100,000 ranks
    for row in rows:
        place = row.rank if alone else (row.state, row.where, row.collective, row.note)
        groups[row.rank not in culprit_ranks, place].append(row)
    ordered = sorted(groups.values(), key=lambda rows: (rows[0].rank not in culprit_ranks, rows[0].rank))
    return [_group(rows, rows[0].rank in culprit_ranks, seen or {}) for rows in ordered]


def rank_table(groups: Sequence[RankGroup], *, resources: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the rows of the rank table.

    ``resources``: with the columns of ``RESOURCE_COLUMNS`` that have a value.
    """
    cells = [group_cells(group) for group in groups]
    shown = [name for name in RESOURCE_COLUMNS if any(row[name] for row in cells)] if resources else []
    columns = [*COLUMNS, *shown]
    return columns, [[row[name] for name in columns] for row in cells]


def group_cells(group: RankGroup, most: int = NAMED_WIDTH) -> dict[str, str]:
    """Return the cells of a group by column; if its ranks take more than ``most`` characters, they are counted."""
    note = short_note(group.note)
    place = f"{group.where}  {group.function}".rstrip() if group.where else note
    doing = (
        [group.collective, f"({note})" if group.collective else note] if note and group.where else [group.collective]
    )
    return {
        "rank": group.ranks if len(group.ranks) <= most else count_text(len(group.members), "rank"),
        "state": group.state.replace("_", " "),
        "where": place,
        "call": " ".join(part for part in doing if part),
        "last moved": group.since or ("now" if group.moves_now else ""),
        "group": group.group,
        "seq": group.seq,
        "CPU": group.cpu,
        "GPU": group.gpu,
        "memory": group.memory,
        "I/O": group.io,
    }


def short_note(note: str) -> str:
    """Return the beginning of a note that is too long for the table."""
    return note if len(note) <= NOTE_WIDTH else note[:NOTE_WIDTH].rpartition(" ")[0] + " …"


def long_notes(groups: Iterable[RankGroup]) -> list[str]:
    """Return the notes that the table shortens, in full."""
    return list(dict.fromkeys(group.note for group in groups if short_note(group.note) != group.note))


def ranks_label(ranks: Sequence[int], most: int = NAMED_WIDTH) -> str:
    """Return ``rank 0``, ``ranks 1–3``, or ``512 ranks`` if their numbers are longer than ``most`` characters."""
    named = rank_ranges(ranks)
    return phrases.mid_sentence(phrases.ranks_phrase(ranks)) if len(named) <= most else count_text(len(ranks), "rank")


def since_text(rows: Iterable[RankRow]) -> str:
    """Return the time since the last progress, at least: ``≥ 3 s``; ``11 min`` if from the Flight Recorder or a log."""
    still = [(row.since_s, row.since_from) for row in rows if row.since_s is not None]
    least_s = min((since_s for since_s, _ in still), default=0.0)
    if least_s < 1:
        return ""
    known = all(source != "samples" for _, source in still)
    return ("" if known else "≥ ") + seconds_text(least_s, whole=True)


def resource_use(seen: ProcessSamples | None) -> ResourceUse:
    """Return the resource use of a process between its last two samples, and that of its GPUs."""
    if seen is None:
        return ResourceUse()
    busy = [device.busy_percent for device in seen.devices if device.busy_percent is not None]
    memory = [device.memory_used_bytes for device in seen.devices if device.memory_used_bytes is not None]
    devices = ResourceUse(gpu_percent=max(busy, default=None), memory_bytes=sum(memory) if memory else None)
    if len(seen.samples) < 2:
        return devices
    first, last = seen.samples[-2:]
    span_s = max(last.at - first.at, 1e-3)
    transferred_bytes = (last.read_bytes + last.written_bytes) - (first.read_bytes + first.written_bytes)
    return devices._replace(
        cpu_percent=max(0.0, last.cpu_s - first.cpu_s) / span_s * 100,
        io_bytes_per_s=max(0, transferred_bytes) / span_s if last.read_bytes or last.written_bytes else None,
    )


def source_places(report: JobReport) -> list[str]:
    """Return the places whose source is shown with the verdict, those of the culprits first."""
    return list(_marks(report))[:SHOWN_PLACES]


def blocking_children(report: JobReport) -> list[str]:
    """Return a line for each child of a culprit that makes no progress: a loader worker, a command."""
    lines: list[str] = []
    for seen in report.observed.seen:
        if seen.process.rank not in report.verdict.culprits:
            continue
        for child in [child for child in seen.children if not child.moved][:SHOWN_CHILDREN]:
            command = " ".join(redact.redact_command(child.command))[:60]
            what = "loader worker" if child.kind == "loader" else f"child {command}"
            frame = next(reversed(user_frames(child.stack)), None)
            at = f" is at {Path(frame.path).name}:{frame.line}  {frame.function}" if frame else ""
            lines.append(f"rank {seen.process.rank}'s {what} (pid {child.pid}){at}")
    return lines


def source_excerpt(report: JobReport, at: str | None = None) -> list[CodeLine]:
    """Return the source around the place of each rank and around the condition of the verdict, file by file.

    If ``at`` is another place, return only the source around it.
    """
    marks = _marks(report)
    shown = list(marks)[:SHOWN_PLACES]
    if at is not None and at not in shown and at.rpartition(":")[0] in report.sources:
        shown = [at]
    elif report.verdict.branch:
        shown.insert(0, report.verdict.branch)
    paths = [path for path in dict.fromkeys(where.rpartition(":")[0] for where in shown) if path in report.sources]
    lines: list[CodeLine] = []
    for path in paths:
        numbers = [phrases.line_number(where) for where in shown if where.rpartition(":")[0] == path]
        lines += [CodeLine(None, path)] if len(paths) > 1 else []
        lines += _file(path, report.sources[path].splitlines(), numbers, marks, report)
    return lines


def _group(rows: list[RankRow], culprit: bool, seen: Mapping[tuple[str, int], ProcessSamples]) -> RankGroup:
    first = rows[0]
    uses = [resource_use(seen.get((row.host, row.pid)) if row.pid is not None else None) for row in rows]
    memory = [use.memory_bytes for use in uses if use.memory_bytes is not None]
    io_rates = [use.io_bytes_per_s for use in uses if use.io_bytes_per_s is not None]
    groups = {row.group for row in rows}
    return RankGroup(
        ranks=rank_ranges([row.rank for row in rows]),
        state=first.state,
        where=phrases.short_place(first.where) if first.where else "",
        function=first.function or "",
        collective=first.collective or "",
        since=since_text(rows),
        culprit=culprit,
        note=first.note,
        members=tuple(row.rank for row in rows),
        group=(first.group or "") if len(groups) == 1 else f"{len(groups)} groups",
        seq=_range([row.seq for row in rows if row.seq is not None]),
        cpu=_range([round(use.cpu_percent) for use in uses if use.cpu_percent is not None], "%"),
        gpu=_range([use.gpu_percent for use in uses if use.gpu_percent is not None], "%"),
        memory=bytes_text(max(memory)) if memory else "",
        io=f"{bytes_text(max(io_rates))}/s" if io_rates else "",
        moves_now=first.state in MOVING and all(row.since_from == "samples" for row in rows),
    )


def _range(numbers: Sequence[int], unit: str = "") -> str:
    """Return ``7``, or ``7–9`` if they differ."""
    if not numbers:
        return ""
    least, most = min(numbers), max(numbers)
    return f"{least}{unit}" if least == most else f"{least}–{most}{unit}"


def _marks(report: JobReport) -> dict[str, list[int]]:
    """Map ``path:line`` to the ranks that are there, the places of the culprits first."""
    marks: dict[str, list[int]] = defaultdict(list)
    culprits = set(report.verdict.culprits)
    for row in sorted(report.ranks, key=lambda row: row.rank not in culprits):
        if row.where:
            marks[row.where].append(row.rank)
    return marks


def _file(
    path: str, text: list[str], numbers: list[int], marks: dict[str, list[int]], report: JobReport
) -> list[CodeLine]:
    around = {n for number in numbers for n in range(number - AROUND, number + AROUND + 1) if 1 <= n <= len(text)}
    wanted = {n for n in around if n in numbers or text[n - 1].strip()}
    branch = report.verdict.branch
    if branch and branch.rpartition(":")[0] == path and report.verdict.where:
        first, last = sorted((phrases.line_number(branch), phrases.line_number(report.verdict.where)))
        shown = phrases.line_number(branch) in numbers and report.verdict.where.rpartition(":")[0] == path
        if shown and last - first <= 8:
            wanted |= set(range(first, last + 1))
    lines: list[CodeLine] = []
    previous = 0
    for number in sorted(wanted):
        if lines and number > previous + 1:
            lines.append(CodeLine(None, ""))
        where = f"{path}:{number}"
        here = marks.get(where, [])
        mark = ", ".join([*([ranks_label(here)] if here else []), *([CAUSE] if where == branch else [])])
        is_culprit = where == branch or bool(set(here) & set(report.verdict.culprits))
        lines.append(CodeLine(number, text[number - 1], mark, is_culprit))
        previous = number
    return lines
