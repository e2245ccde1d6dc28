"""The line at which a slow rank spends its time and the other ranks do not."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from ..training_script.frame import StackFrame
from .rank_activity.frames import is_importing, user_frames
from .time_shares import activity_of
from .types import JobReport, Sample

# How many samples show a rank in each innermost frame of the user's code; None: in a collective.
PlaceCounts = Mapping[StackFrame | None, int]


def count_places(samples: Iterable[Sample]) -> Counter[StackFrame | None]:
    """Count the places of samples with a stack."""
    found = Counter[StackFrame | None]()
    for sample in samples:
        frames = user_frames(sample.stack)
        if frames and not is_importing(sample.stack):
            found[None if activity_of(sample) == "collective" else frames[-1]] += 1
    return found


def add_places(counted: Mapping[int, PlaceCounts], before: JobReport | None, now: JobReport) -> dict[int, PlaceCounts]:
    """Return the counts of each rank, with the samples of a report that the one before does not have."""
    places = dict(counted)
    for row in now.ranks:
        known = {sample.at for sample in before.samples(row)} if before else set[float]()
        newer = (sample for sample in now.samples(row) if sample.at not in known)
        places[row.rank] = Counter(places.get(row.rank, {})) + count_places(newer)
    return places


def slow_place(slow: PlaceCounts, others: Iterable[PlaceCounts]) -> str | None:
    """Return ``path:line`` where the slow rank is most often, in the function whose share of its samples exceeds that
    of the other ranks most; None if there is none."""
    rest = sum((Counter(each) for each in others), Counter[StackFrame | None]())
    excess = defaultdict[tuple[str, str], float](float)
    for counts, sign in ((slow, 1), (rest, -1)):
        total = sum(counts.values())
        for frame, count in counts.items():
            if frame:
                excess[frame.path, frame.function] += sign * count / total
    in_excess = [key for key in excess if excess[key] > 0]
    if not in_excess:
        return None
    path, function = max(in_excess, key=lambda key: excess[key])
    lines = {f.line: n for f, n in slow.items() if f and (f.path, f.function) == (path, function)}
    latest_first = list(lines)[::-1]
    return f"{path}:{max(latest_first, key=lambda line: lines[line])}"
