"""How to speak of ranks and places: "ranks 1–3", "waits in all_reduce at train.py:88"."""

from collections.abc import Sequence
from pathlib import Path

from ..probes.units import rank_numbers
from .standing import Stand

SHOWN_PLACES = 3


def ranks(numbers_: Sequence[int], verb: str = "") -> str:
    """``Rank 0 waits``, ``Ranks 1–3 wait``: the verb is given in its plural."""
    one = len(numbers_) == 1
    name = f"Rank{'' if one else 's'} {rank_numbers(numbers_)}"
    if not verb:
        return name
    singular = {"have": "has", "are": "is", "do": "does"}.get(verb.split()[0], verb.split()[0] + "s")
    return f"{name} {' '.join([singular, *verb.split()[1:]]) if one else verb}"


def within(text: str) -> str:
    """The same in the middle of a sentence."""
    return text[:1].lower() + text[1:]


def short(where: str | None) -> str:
    """``train.py:88`` for a whole path."""
    return Path(where).name if where else "an unknown line"


def line(where: str) -> int:
    """The line number of ``path:line``."""
    return int(where.rpartition(":")[2])


def operation(stand: Stand) -> str:
    """What a rank waits in: ``all_reduce``, or how it came about, ``the gradient all-reduce (DDP)``."""
    if stand.via:
        return stand.via if stand.via.startswith(("DDP", "FSDP", "the ", "work ")) else f"the {stand.via}"
    return stand.collective or "code of its own"


def place(stand: Stand) -> str:
    """``all_reduce at train.py:88``."""
    return f"{operation(stand)} at {short(stand.row.where)}"


def places(stands: Sequence[Stand]) -> str:
    """The same of several ranks: ``all_reduce at train.py:88 (rank 1) and train.py:92 (ranks 2, 3)``."""
    by_place: dict[str, list[Stand]] = {}
    for stand in stands:
        by_place.setdefault(place(stand), []).append(stand)
    if len(by_place) == 1:
        return next(iter(by_place))
    told: list[str] = []
    before = ""
    for group in list(by_place.values())[:SHOWN_PLACES]:
        what = operation(group[0])
        where = short(group[0].row.where) if what == before else place(group[0])
        told.append(f"{where} ({within(ranks([stand.rank for stand in group]))})")
        before = what
    if (more := len(by_place) - SHOWN_PLACES) > 0:
        told.append(f"{more} more place{'s' if more > 1 else ''}")
    return f"{', '.join(told[:-1])} and {told[-1]}"
