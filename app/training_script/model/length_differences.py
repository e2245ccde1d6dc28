"""Numbers and lengths compared between two ranks."""

from collections.abc import Callable, Iterator

from .amounts import has_unknown_step, has_unknown_stop, is_whole_share
from .assumed_numbers import COUNT_TRIALS, AssumedNumbers
from .keys import BY_RANK, DIFFERS, TOUCHED, Key
from .keys import parts as parts_of
from .lengths import WORKER, number
from .members import PAIR, Member

NUMBERS_OF_WORKERS = (1, 2, 4)


def differ(key: Key, of: "Callable[[Key, Member], int | None]") -> bool:
    """Return whether a number or a length is surely another one on each of two ranks."""
    first, second = (of(key, rank) for rank in PAIR)
    return first is not None and second is not None and first != second


def is_even(count: Key) -> bool:
    """Return whether two ranks surely have the same number of rounds or elements."""
    if any(part.op == WORKER for part in parts_of(count)):
        return all(_is_even_for(count, workers) for workers in NUMBERS_OF_WORKERS)
    if count.op == "length" and all(is_whole_share(each) or not each.differs_by & DIFFERS for each in count.args):
        return True
    first, second = (number(count, rank) for rank in PAIR)
    if first is not None:
        return first == second
    return all(first is not None and first == second for first, second in _tried(count, number))


def _is_even_for(count: Key, workers: int) -> bool:
    """Return whether the workers of a loader have the same number of rounds or elements together on two ranks."""
    first, second = (
        [number(count, rank._replace(worker=worker, workers=workers)) for worker in range(workers)] for rank in PAIR
    )
    known = [[each for each in counts if each is not None] for counts in (first, second)]
    return len(known[0]) == len(known[1]) == workers and sum(known[0]) == sum(known[1])


def may_differ(key: Key, of: "Callable[[Key, Member], int | None]") -> bool:
    """Return whether a number or a length that the rank decides is another one on two ranks for some numbers.

    Which these are the program does not show: how many elements a list has that the ranks divide. A file is as long
    as that of the other rank.
    """
    if has_unknown_step(key) or has_unknown_stop(key):
        return False
    tried = _tried(key, of, BY_RANK)
    return any(first is not None and second is not None and first != second for first, second in tried)


def _tried(
    key: Key, of: "Callable[[Key, Member], int | None]", differs_by: int = DIFFERS | TOUCHED
) -> Iterator[tuple[int | None, int | None]]:
    """Yield what a number or a length is on two ranks, with other numbers assumed each time."""
    for trial in range(COUNT_TRIALS):
        assumed = AssumedNumbers(trial, differs_by)
        first, second = (of(key, rank._replace(assumed=assumed)) for rank in PAIR)
        yield first, second
        if first is None or second is None:
            return
