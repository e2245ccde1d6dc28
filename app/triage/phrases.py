"""Phrases for ranks, places and job states: "ranks 1–3", "waits in all_reduce at train.py:88", "looks hung"."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..text.units import rank_ranges
from .types import JobState

if TYPE_CHECKING:
    from .rank_activity.rank_state import RankState  # it loads the analysis of scripts, which Home does not need

SHOWN_PLACES = 3
# The status sign (ok, warn, fail, running, unknown) and the text of each job state.
JOB_STATE_TEXT: dict[JobState, tuple[str, str]] = {
    "hung": ("warn", "looks hung"),
    "progressing": ("ok", "making progress"),
    "dead": ("fail", "has ended"),
    "starting": ("running", "starting"),
    "unknown": ("unknown", "state unknown"),
}
ENDED_STATE = ("skip", "has ended")  # of a job that is gone since it was sampled
# How a process died (``ProcessDeath.how``).
DEATH_TEXT = {
    "oom_killer": "killed by the kernel's OOM killer",
    "signal": "killed by a signal",
    "exit": "ended by an error",
}


def ranks_phrase(ranks: Sequence[int], verb: str = "") -> str:
    """Return ``Rank 0 waits`` or ``Ranks 1–3 wait``; pass the verb in its plural form."""
    one = len(ranks) == 1
    name = f"Rank{'' if one else 's'} {rank_ranges(ranks)}"
    if not verb:
        return name
    singular = {"have": "has", "are": "is", "do": "does"}.get(verb.split()[0], verb.split()[0] + "s")
    return f"{name} {' '.join([singular, *verb.split()[1:]]) if one else verb}"


def mid_sentence(text: str) -> str:
    """Return a sentence with a lower-case first letter."""
    return text[:1].lower() + text[1:]


def short_place(where: str | None) -> str:
    """Return ``train.py:88`` for a full path."""
    return Path(where).name if where else "an unknown line"


def line_number(where: str) -> int:
    """Return the line number of ``path:line``."""
    return int(where.rpartition(":")[2])


def operation_text(state: "RankState") -> str:
    """Return what a rank waits in: ``all_reduce``, or the feature that issued it, ``the gradient all-reduce (DDP)``."""
    if state.via:
        return state.via if state.via.startswith(("DDP", "FSDP", "the ", "work ")) else f"the {state.via}"
    return state.collective or "its own code"


def place_text(state: "RankState") -> str:
    """Return ``all_reduce at train.py:88``."""
    return f"{operation_text(state)} at {short_place(state.row.where)}"


def places_text(states: "Sequence[RankState]") -> str:
    """Return the places of several ranks: ``all_reduce at train.py:88 (rank 1) and train.py:92 (ranks 2, 3)``."""
    by_place: dict[str, list[RankState]] = {}
    for state in states:
        by_place.setdefault(place_text(state), []).append(state)
    if len(by_place) == 1:
        return next(iter(by_place))
    parts: list[str] = []
    previous = ""
    for group in list(by_place.values())[:SHOWN_PLACES]:
        operation = operation_text(group[0])
        place = short_place(group[0].row.where) if operation == previous else place_text(group[0])
        parts.append(f"{place} ({mid_sentence(ranks_phrase([state.rank for state in group]))})")
        previous = operation
    if (more := len(by_place) - SHOWN_PLACES) > 0:
        parts.append(f"{more} more place{'s' if more > 1 else ''}")
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
