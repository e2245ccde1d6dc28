"""Findings from out-of-memory messages: which rank ran out, on which GPU, and who held the memory."""

from collections.abc import Iterator

from ..evidence import Evidence
from ..text.units import gib_number, gib_text
from .types import Attempt, TimelineEvent, Track

FRAGMENTED_SHARE = 0.1  # of the GPU, reserved but unallocated, and at least the requested size
OTHERS_SHARE = 0.5  # of the memory used on the GPU
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
            yield _finding(
                "oom-on-one-rank", f"{track.name} ran out of GPU memory, the other {others} did not", event, track
            )
        elif event and len(who) == len(attempt.tracks):
            yield _finding("oom-on-all-ranks", f"all {len(who)} ranks ran out of GPU memory", event, None)
    for track, event in [*ran_out, *((None, event) for event in shared)]:
        yield from _numbers(track, event)


def _numbers(track: Track | None, event: TimelineEvent) -> Iterator[Evidence]:
    size = {name: int(value) for name, value in event.values.items()}
    total = size.get("total", 0)
    own = size.get("own", 0)
    if track and track.rank and size.get("gpu") == 0 and total and own < OWN_SHARE * total:
        what = f"{track.name} ran out of memory on GPU 0, of which it holds {gib_number(own)} of {gib_text(total)}"
        yield _finding("oom-on-first-gpu", what, event, track)
    unallocated = size.get("unallocated", 0)
    if total and unallocated >= max(size.get("tried", 0), FRAGMENTED_SHARE * total):
        what = f"{gib_text(unallocated)} were reserved but unallocated, {gib_text(size.get('tried', 0), 2)} requested"
        yield _finding("oom-fragmented", what, event, track)
    used = total - size.get("free", 0)
    others = max(size.get("others", 0), used - own if own and "free" in size else 0)
    if total and own and others > OTHERS_SHARE * used and others > own:
        what = (
            f"other processes hold {gib_number(others)} of the {gib_text(used)} in use, this process {gib_number(own)}"
        )
        yield _finding("oom-held-by-others", what, event, track)


def _finding(name: str, what: str, event: TimelineEvent, track: Track | None) -> Evidence:
    rank, host = (track.rank, track.host) if track else (None, "")
    return Evidence(f"log.{name}", "log", what, where=event.where, rank=rank, host=host)
