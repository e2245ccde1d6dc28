"""Shares of time of each rank in the parts of a training step, estimated from repeated stack samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ..text.terminal import align_columns
from ..text.units import count_text, percent_text
from .rank_activity.collectives_in_stack import waits_in_collective
from .rank_activity.frames import is_importing
from .types import JobReport, Sample

Activity = Literal["loader", "forward", "backward", "optimizer", "collective", "other"]
ACTIVITIES: tuple[Activity, ...] = ("loader", "forward", "backward", "optimizer", "collective", "other")
# Parts of the paths of torch by which a stack is in an activity; the first that matches counts.
PARTS: tuple[tuple[Activity, tuple[str, ...]], ...] = (
    ("loader", ("/torch/utils/data/",)),
    ("optimizer", ("/torch/optim/",)),
    ("backward", ("/torch/autograd/", "/torch/_tensor.py")),
    ("forward", ("/torch/nn/modules/", "/torch/nn/parallel/", "/torch/nn/functional.py")),
)
MOST_SAMPLES = 120  # kept of one rank
LEAST_SAMPLES = 3  # for shares that are shown
LEAST_FOR_TREND = 8
TREND_CHANGE = 0.2  # change of a share from the older to the newer half of the samples
SHOWN_RANKS = 4

History = Mapping[int, Sequence[tuple[float, Activity]]]  # by rank: time and activity of each sample, oldest first


class RankShares(NamedTuple):
    """One rank: its share of samples in each activity, their number, and the share that changes most."""

    rank: int
    shares: dict[Activity, float]
    samples: int
    trend: str


def activity_of(sample: Sample) -> Activity:
    """Return the part of a training step in which a sample shows a rank."""
    if waits_in_collective(sample):
        return "collective"
    paths = [frame.path for frame in sample.stack]
    for activity, parts in PARTS:
        if any(part in path for path in paths for part in parts):
            return activity
    return "other"


def extend_history(history: History, report: JobReport) -> History:
    """Return the history with the samples of a report that are newer than its own.

    A module that is imported is no part of a step: torch imports some in the first one.
    """
    extended = {rank: list(samples) for rank, samples in history.items()}
    for row in report.ranks:
        known = extended.setdefault(row.rank, [])
        since = known[-1][0] if known else 0.0
        newer = (sample for sample in report.samples(row) if sample.stack and sample.at > since)
        known += [(sample.at, activity_of(sample)) for sample in newer if not is_importing(sample.stack)]
        del known[:-MOST_SAMPLES]
    return extended


def time_shares(history: History) -> list[RankShares]:
    """Return the shares of each rank with enough samples, the rank that waits least for others first."""
    rows = [
        RankShares(rank, _shares([activity for _, activity in samples]), len(samples), _trend(samples))
        for rank, samples in history.items()
        if len(samples) >= LEAST_SAMPLES
    ]
    return sorted(rows, key=lambda row: (row.shares.get("collective", 0.0), row.rank))


def share_lines(history: History) -> list[str]:
    """Return the shares as a table: one row for each rank, a column for each activity that was seen."""
    rows = time_shares(history)
    if not rows:
        return []
    seen: list[Activity] = [activity for activity in ACTIVITIES if any(row.shares.get(activity) for row in rows)]
    table = [["time in", *seen, "samples", ""]]
    for row in rows[:SHOWN_RANKS]:
        cells = [percent_text(row.shares[activity]) if row.shares.get(activity) else "-" for activity in seen]
        table.append([f"rank {row.rank}", *cells, str(row.samples), row.trend])
    hidden = len(rows) - SHOWN_RANKS
    more = [f"and {count_text(hidden, 'more rank')}"] if hidden > 0 else []
    return [*(line.rstrip() for line in align_columns(table)), *more]


def _shares(activities: Sequence[Activity]) -> dict[Activity, float]:
    return {activity: count / len(activities) for activity, count in Counter(activities).items()}


def _trend(samples: Sequence[tuple[float, Activity]]) -> str:
    """Return the activity whose share changes most over the samples, with its direction; "" if none does."""
    if len(samples) < LEAST_FOR_TREND:
        return ""
    half = len(samples) // 2
    before, now = (_shares([activity for _, activity in part]) for part in (samples[:half], samples[half:]))
    changes = {activity: now.get(activity, 0.0) - before.get(activity, 0.0) for activity in ACTIVITIES}
    activity = max(ACTIVITIES, key=lambda name: abs(changes[name]))
    if abs(changes[activity]) < TREND_CHANGE:
        return ""
    return f"{activity} {'grows' if changes[activity] > 0 else 'shrinks'}"
