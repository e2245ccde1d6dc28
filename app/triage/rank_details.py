"""Details of one rank as a page: facts, the source around its line, stacks, children, connections and output.

The page is plain data, rendered by the screens and the plain wizard.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..text.units import bytes_text, count_text
from ..training_script.frame import StackFrame
from ..training_script.line_queries import LineQueries
from . import phrases, rank_groups
from .rank_activity.frames import user_frames
from .types import Child, Connection, GpuUse, JobReport, LocalsStack, ProcessSamples, RankRow

AROUND = 3  # lines shown before and after the rank's line
MOST_FRAMES = 12  # of a thread other than the main one
MOST_THREADS = 40
MOST_LINKS = 24
KERNEL_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a disk or a driver",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended, not reaped by its parent",
}


class DetailLine(NamedTuple):
    """One line: its text, and a less important annotation next to it."""

    text: str
    annotation: str = ""


class DetailSection(NamedTuple):
    """A section of the page with its title."""

    title: str
    lines: list[DetailLine]


class RankStack(NamedTuple):
    """A stack, innermost frame first, and the ranks that have it. ``note`` is the reason if there are no frames."""

    ranks: list[int]
    frames: tuple[StackFrame, ...]
    note: str


def find_row(report: JobReport, rank: int) -> RankRow | None:
    """Return the row of a rank, or None."""
    return next((row for row in report.ranks if row.rank == rank), None)


def samples_of_row(report: JobReport, row: RankRow) -> ProcessSamples | None:
    """Return the samples of a rank's process, or None if there are none."""
    return next((seen for seen in report.observed.seen if (seen.process.pid, seen.host) == (row.pid, row.host)), None)


def rank_facts(report: JobReport, row: RankRow) -> list[tuple[str, str]]:
    """Return named facts of a rank; unknown ones are left out."""
    seen = samples_of_row(report, row)
    use, last = rank_groups.resource_use(seen), seen.samples[-1] if seen and seen.samples else None
    found = [
        (
            "state",
            " ".join(filter(None, [row.state.replace("_", " "), f"in {row.collective}" if row.collective else ""])),
        ),
        ("where", f"{phrases.short_place(row.where)}  {row.function or ''}".rstrip() if row.where else ""),
        ("note", row.note),
        ("last moved", _ago(row)),
        ("group", row.group or ""),
        ("sequence", str(row.seq) if row.seq is not None else ""),
        ("process", _process(row, seen)),
        ("CPU", f"{use.cpu_percent:.0f}% of one core" if use.cpu_percent is not None else ""),
        ("I/O", f"{bytes_text(use.io_bytes_per_s)}/s" if use.io_bytes_per_s is not None else ""),
        ("kernel", _kernel(last.process_state, last.waits_in) if last else ""),
    ]
    found += [
        ("GPU", _device(device.index, device.busy_percent, device.memory_used_bytes)) for device in _devices(seen)
    ]
    return [(name, text) for name, text in found if text]


def source_around_rank(report: JobReport, row: RankRow) -> list[rank_groups.CodeLine]:
    """Return the source around the rank's line, with the heads of the enclosing function, loops and conditions."""
    path, _, number = (row.where or "").rpartition(":")
    if path not in report.sources:
        return []
    text, here = report.sources[path].splitlines(), int(number)
    shown = set(range(here - AROUND, here + AROUND + 1)) | set(
        enclosing_heads(report.sources[path], here, row.function or "")
    )
    lines: list[rank_groups.CodeLine] = []
    for n in sorted(n for n in shown if 1 <= n <= len(text)):
        if lines and lines[-1].number != n - 1:
            lines.append(rank_groups.CodeLine(None, ""))
        mark = f"rank {row.rank}" if n == here else ""
        lines.append(rank_groups.CodeLine(n, text[n - 1], mark, bool(mark) and row.rank in report.verdict.culprits))
    return lines


def enclosing_heads(text: str, line: int, function: str) -> list[int]:
    """Return the first lines of the function, loops and conditions that decide whether a line is reached."""
    source = LineQueries(text)
    function_line = getattr(source.function_at(line), "lineno", None)
    guards = source.guards(line, source.scope(line, function))
    return sorted(
        {
            *([function_line] if function_line else []),
            *(loop.lineno for loop in source.loops(line)),
            *(g.line for g in guards),
        }
    )


def detail_sections(report: JobReport, row: RankRow) -> list[DetailSection]:
    """Return the main stack, children, connections, output and other threads; empty sections are left out."""
    seen = samples_of_row(report, row)
    last = seen.samples[-1] if seen and seen.samples else None
    if seen is None or last is None:
        return []
    main = DetailSection(
        "Main thread, innermost first", [*frame_lines(last.stack)] or [DetailLine(last.problem or "not read")]
    )
    others = [
        DetailSection(
            f"Thread {thread.name}", [*frame_lines(thread.frames, MOST_FRAMES)] or [DetailLine("no Python frames")]
        )
        for thread in last.others[:MOST_THREADS]
    ]
    if len(last.others) > MOST_THREADS:
        others.append(DetailSection(f"{len(last.others) - MOST_THREADS} more threads", []))
    return [
        main,
        *(part for part in (_children(seen.children), _links(seen.links), _output(seen)) if part.lines),
        *others,
    ]


def frame_lines(frames: Sequence[StackFrame], most: int = 200) -> Iterable[DetailLine]:
    """Yield one line a frame: the function and its place."""
    yield from (DetailLine(frame.function, f"{frame.path}:{frame.line}") for frame in frames[:most])
    if len(frames) > most:
        yield DetailLine(f"… {len(frames) - most} more")


def distinct_stacks(report: JobReport, ranks: Iterable[int]) -> list[RankStack]:
    """Return the distinct stacks of these ranks in the last sample; those of the fewest ranks first."""
    wanted = set(ranks)
    seen = {(each.host, each.process.pid): each for each in report.observed.seen}
    found: dict[tuple[tuple[StackFrame, ...], str], list[int]] = defaultdict(list)
    for row in report.ranks:
        if row.rank in wanted:
            each = seen.get((row.host, row.pid)) if row.pid is not None else None
            frames = tuple(each.samples[-1].stack) if each and each.samples else ()
            found[frames, "" if frames else row.note or row.state].append(row.rank)
    ordered = sorted(found.items(), key=lambda item: (len(item[1]), item[1]))
    return [RankStack(members, frames, note) for (frames, note), members in ordered]


def local_values(found: Sequence[LocalsStack]) -> list[DetailSection]:
    """Return stacks with the values of the variables in the frames of the user's code."""
    parts: list[DetailSection] = []
    for stack in found:
        user = user_frames([each.frame for each in stack.frames])
        lines: list[DetailLine] = []
        for each in stack.frames:
            lines += frame_lines([each.frame])
            lines += [DetailLine(f"    {name} = {value}") for name, value in each.values.items() if each.frame in user]
        parts.append(DetailSection(f"Thread {stack.name}", lines))
    return parts


def _ago(row: RankRow) -> str:
    since = rank_groups.since_text([row])
    if not since:
        return "just now" if row.state in ("running", "starting") else ""
    source = {"recorder": ", from the Flight Recorder", "log": ", from the log", "samples": ", from samples"}
    return f"{since} ago{source[row.since_from]}"


def _process(row: RankRow, seen: ProcessSamples | None) -> str:
    if row.pid is None:
        return ""
    inside = seen.process.pid_inside if seen else None
    last = seen.samples[-1] if seen and seen.samples else None
    parts = [
        f"pid {row.pid}" + (f" ({inside} in its container)" if inside else ""),
        f"on {row.host}" if row.host else "",
        f"local rank {row.local_rank}" if row.local_rank is not None else "",
        count_text(last.threads, "thread") if last and last.threads else "",
    ]
    return ", ".join(filter(None, parts))


def _kernel(state: str, waits_in: str) -> str:
    text = KERNEL_STATES.get(state, state)
    return f"{text}, in {waits_in}" if text and waits_in else text


def _devices(seen: ProcessSamples | None) -> list[GpuUse]:
    return seen.devices if seen else []


def _device(index: int, busy_percent: int | None, memory_bytes: int | None) -> str:
    busy = f", {busy_percent}% busy" if busy_percent is not None else ""
    memory = f", {bytes_text(memory_bytes)} in use" if memory_bytes is not None else ""
    return f"{index}{busy}{memory}"


def _children(children: Sequence[Child]) -> DetailSection:
    lines: list[DetailLine] = []
    for child in children:
        name = (
            "loader worker" if child.kind == "loader" else Path(child.command[0]).name if child.command else "process"
        )
        state = KERNEL_STATES.get(child.process_state, child.process_state)
        lines.append(
            DetailLine(f"{name}, pid {child.pid}: {'making progress' if child.moved else f'{state}, no progress'}")
        )
        innermost = user_frames(child.stack)[-1:] or child.stack[:1]
        lines += [DetailLine(f"  {frame.function}", f"{frame.path}:{frame.line}") for frame in innermost]
        lines += [DetailLine("  " + " ".join(child.command))] if child.kind == "other" else []
    return DetailSection(f"Processes it started: {len(children)}", lines)


def _links(links: Sequence[Connection]) -> DetailSection:
    lines = [
        DetailLine(f"listens on {link.local}")
        if link.state.startswith("listen")
        else DetailLine(
            f"{link.local} → {link.peer}", link.state + (_unsent(link) if link.waiting_to_send_bytes else "")
        )
        for link in sorted(links, key=lambda link: -link.waiting_to_send_bytes)[:MOST_LINKS]
    ]
    if len(links) > MOST_LINKS:
        lines.append(DetailLine(f"… {len(links) - MOST_LINKS} more"))
    return DetailSection(f"Connections: {len(links)}", lines)


def _unsent(link: Connection) -> str:
    return f", {bytes_text(link.waiting_to_send_bytes)} not accepted by the peer"


def _output(seen: ProcessSamples) -> DetailSection:
    source = f" ({seen.output_from})" if seen.output_from else ""
    return DetailSection(f"Last output{source}", [DetailLine(line) for line in seen.output])
