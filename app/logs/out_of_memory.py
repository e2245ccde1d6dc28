"""Findings from out-of-memory messages: which rank ran out, on which GPU, and who held the memory."""

from collections.abc import Iterator

from ..evidence import Evidence
from ..text.units import gib_number, gib_text
from .timeline import all_events
from .types import Attempt, TimelineEvent, Track

FRAGMENTED_SHARE = 0.1  # of the GPU, reserved but unallocated, and at least the requested size
OTHERS_SHARE = 0.5  # of the memory used on the GPU
PID_MARKS = ("mark:rank-pid", "mark:stopped")
OWN_SHARE = 0.5  # a process that holds this much of a GPU is its main user


def out_of_memory_findings(attempt: Attempt) -> Iterator[Evidence]:
    """Yield the findings of the out-of-memory errors of one attempt."""
    ran_out = [(track, event) for track in attempt.tracks for event in track.events if event.id == "mark:oom"]
    shared = [event for event in attempt.shared if event.id == "mark:oom"]
    who = {track.name: (track, event) for track, event in reversed(ran_out) if track}
    if len(attempt.tracks) >= 2 and not shared:
        track, event = next(iter(who.values()), (None, None))
        if track and event and len(who) == 1:
            others = len(attempt.tracks) - 1
            who = f"the other {others} ranks show" if others > 1 else "the other rank shows"
            yield _finding("oom-on-one-rank", f"{track.name} ran out of GPU memory, {who} no such error", event, track)
        elif event and len(who) == len(attempt.tracks):
            yield _finding("oom-on-all-ranks", f"all {len(who)} ranks ran out of GPU memory", event, None)
    rank_pids = _rank_pids(attempt)
    for track, event in [*ran_out, *((None, event) for event in shared)]:
        yield from _numbers(track, event, rank_pids)


def _rank_pids(attempt: Attempt) -> set[str]:
    """Return the processes of all ranks; nothing if the log does not name that of each rank."""
    pids = {event.values["pid"] for _, event in all_events(attempt) if event.id in PID_MARKS}
    highest = max((track.rank for track in attempt.tracks if track.rank is not None), default=0)
    return pids if len(pids) > max(1, highest) else set()


def _numbers(track: Track | None, event: TimelineEvent, rank_pids: set[str]) -> Iterator[Evidence]:
    size = {name: int(value) for name, value in event.values.items() if name != "holders"}
    total = size.get("total", 0)
    own = size.get("own", 0)
    if track and track.rank and size.get("gpu") == 0 and total and own < OWN_SHARE * total:
        what = f"{track.name} ran out of memory on GPU 0, of which it holds {gib_number(own)} of {gib_text(total)}"
        yield _finding("oom-on-first-gpu", what, event, track)
    unallocated = size.get("unallocated", 0)
    reserved = size.get("allocated", 0) + unallocated
    if total and reserved > OWN_SHARE * total:
        what = f"the process itself had reserved {gib_number(reserved)} of the GPU's {gib_text(total)}"
        yield _finding("oom-own-memory", what, event, track)
    tried = size.get("tried", 0)
    if "free" in size and "unallocated" in size and tried > size["free"] + unallocated:
        room = gib_text(size["free"] + unallocated, 2)
        what = f"{gib_text(tried, 2)} requested, more than the {room} that were free or unallocated together"
        yield _finding("oom-exceeds-free", what, event, track)
    elif total and unallocated >= max(tried, FRAGMENTED_SHARE * total):
        what = f"{gib_text(unallocated)} were reserved but unallocated, {gib_text(tried, 2)} requested"
        yield _finding("oom-fragmented", what, event, track)
    yield from _holders(track, event, size, rank_pids)


def _holders(
    track: Track | None, event: TimelineEvent, size: dict[str, int], rank_pids: set[str]
) -> Iterator[Evidence]:
    """Yield the findings about other processes on the GPU.

    Only a message that names its own process ("this process has …") numbers the processes as the log does.
    """
    total, own, free = size.get("total", 0), size.get("own", 0), size.get("free", 0)
    if not total or not own:
        return
    held = {pid: int(bytes_) for pid, _, bytes_ in (h.partition(":") for h in event.values.get("holders", "").split())}
    other_processes = {pid: bytes_ for pid, bytes_ in held.items() if pid not in rank_pids}
    of_ranks = sum(held.values()) - sum(other_processes.values())
    used = total - free
    others = max(sum(other_processes.values()), used - own - of_ranks if "free" in size else 0)
    largest = max(other_processes, key=lambda pid: other_processes[pid], default="")
    values = {"holder_pid": largest, "holder_size": gib_text(other_processes[largest], 2)} if largest else {}
    if others > OTHERS_SHARE * used and others > own:
        what = (
            f"other processes hold {gib_number(others)} of the {gib_text(used)} in use, this process {gib_number(own)}"
        )
        yield _finding("oom-held-by-others", what, event, track, values)
    if rank_pids and largest and size.get("tried", 0) <= free + sum(other_processes.values()):
        what = (
            f"process {largest}, which is none of the ranks, holds {gib_text(other_processes[largest], 2)} of the GPU; "
            f"without it the requested {gib_text(size.get('tried', 0), 2)} fit"
        )
        yield _finding("oom-foreign-process", what, event, track, values)


def _finding(
    name: str, what: str, event: TimelineEvent, track: Track | None, values: dict[str, str] | None = None
) -> Evidence:
    rank, host = (track.rank, track.host) if track else (None, "")
    return Evidence(f"log.{name}", "log", what, where=event.where, rank=rank, host=host, values=values or {})
