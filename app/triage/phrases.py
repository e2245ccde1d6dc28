"""How to speak of ranks and places: "ranks 1–3", "waits in all_reduce at train.py:88"."""

from collections.abc import Sequence
from pathlib import Path

from ..text.units import rank_ranges
from .rank_activity.rank_state import RankState

SHOWN_PLACES = 3


def ranks_phrase(numbers_: Sequence[int], verb: str = "") -> str:
    """``Rank 0 waits``, ``Ranks 1–3 wait``: the verb is given in its plural."""
    one = len(numbers_) == 1
    name = f"Rank{'' if one else 's'} {rank_ranges(numbers_)}"
    if not verb:
        return name
    singular = {"have": "has", "are": "is", "do": "does"}.get(verb.split()[0], verb.split()[0] + "s")
    return f"{name} {' '.join([singular, *verb.split()[1:]]) if one else verb}"


def mid_sentence(text: str) -> str:
    """The same in the middle of a sentence."""
    return text[:1].lower() + text[1:]


def short_place(where: str | None) -> str:
    """``train.py:88`` for a whole path."""
    return Path(where).name if where else "an unknown line"


def line_number(where: str) -> int:
    """The line number of ``path:line``."""
    return int(where.rpartition(":")[2])


def operation_text(stand: RankState) -> str:
    """What a rank waits in: ``all_reduce``, or how it came about, ``the gradient all-reduce (DDP)``."""
    if stand.via:
        return stand.via if stand.via.startswith(("DDP", "FSDP", "the ", "work ")) else f"the {stand.via}"
    return stand.collective or "code of its own"


def place_text(stand: RankState) -> str:
    """``all_reduce at train.py:88``."""
    return f"{operation_text(stand)} at {short_place(stand.row.where)}"


def places_text(stands: Sequence[RankState]) -> str:
    """The same of several ranks: ``all_reduce at train.py:88 (rank 1) and train.py:92 (ranks 2, 3)``."""
    by_place: dict[str, list[RankState]] = {}
    for stand in stands:
        by_place.setdefault(place_text(stand), []).append(stand)
    if len(by_place) == 1:
        return next(iter(by_place))
    told: list[str] = []
    before = ""
    for group in list(by_place.values())[:SHOWN_PLACES]:
        what = operation_text(group[0])
        where = short_place(group[0].row.where) if what == before else place_text(group[0])
        told.append(f"{where} ({mid_sentence(ranks_phrase([stand.rank for stand in group]))})")
        before = what
    if (more := len(by_place) - SHOWN_PLACES) > 0:
        told.append(f"{more} more place{'s' if more > 1 else ''}")
    return f"{', '.join(told[:-1])} and {told[-1]}"


JOB_SAYS = {
    "hung": ("warn", "looks hung"),
    "progressing": ("ok", "moving"),
    "dead": ("fail", "has ended"),
    "starting": ("running", "starting"),
    "unknown": ("unknown", "cannot tell yet"),
}
