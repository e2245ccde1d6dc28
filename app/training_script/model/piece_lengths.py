"""Arithmetic of lengths: pieces, slices, batches and ranges. None is a number that does not follow."""

import operator
from collections.abc import Callable

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Mod": operator.mod,
    "FloorDiv": operator.floordiv,
    "Div": operator.floordiv,  # as int() makes a number of it
}
LONGEST = 1 << 24


def count_pieces(whole: int | None, count: int | None) -> int | None:
    """Return the number of pieces that ``chunk`` makes: fewer than asked for of a short tensor."""
    return -(-whole // -(-whole // count)) if whole and count else None


def piece_length(whole: int | None, count: int | None, place: int | None) -> int | None:
    """Return the length of one of the pieces that ``chunk`` makes."""
    if not whole or not count:
        return 0 if whole == 0 else None
    return part_of_size(whole, -(-whole // count), place)


def part_of_size(whole: int | None, size: int | None, place: int | None) -> int | None:
    """Return the length of one of the pieces of one size, of which the last one has what is left."""
    if whole is None or not size or place is None:
        return None
    place += -(-whole // size) if place < 0 else 0
    return max(0, min(size, whole - place * size))


def equal_part_length(whole: int | None, count: int | None, place: int | None) -> int | None:
    """Return the length of one of the parts that ``array_split`` makes: the first ones have one element more."""
    if whole is None or not count or place is None:
        return None
    return whole // count + (place % count < whole % count)


def compute(operation: Callable[[int, int], int], left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    try:
        value = operation(left, right)
    except ZeroDivisionError:
        return None
    return value if abs(value) < LONGEST else None


def range_length(bounds: list[int | None]) -> int | None:
    known = [each for each in bounds if each is not None]
    return len(range(*known)) if len(known) == len(bounds) in (1, 2, 3) and 0 not in known[2:] else None


def slice_length(held: int | None, bounds: list[tuple[int | None, bool]]) -> int | None:
    if held is None or not all(known for _, known in bounds) or bounds[2][0] == 0:
        return None
    return len(range(held)[slice(*(value for value, _ in bounds))])


def cut_length(bounds: list[tuple[int | None, bool]]) -> int | None:
    """Return the number of elements to which a sequence of unknown length is cut, if it has so many."""
    (first, _), (last, _), (step, known) = bounds
    whole = bounds[0][1] and first in (None, 0) and known and step in (None, 1)
    return last if whole and last is not None and last >= 0 else None


def count_batches(samples: int | None, size: int | None, *, drops: bool) -> int | None:
    if samples is None or not size:
        return None
    return samples // size if drops else -(-samples // size)


def count_every(whole: int, first: int | None, step: int | None) -> int | None:
    return len(range(first, whole, step)) if first is not None and step and 0 <= first < step else None
