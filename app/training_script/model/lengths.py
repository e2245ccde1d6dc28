"""Numbers and lengths that follow from what a program writes out: how many elements or batches a rank gets."""

import operator
from collections.abc import Callable

from .keys import Key, Rank

PAIR = tuple(Rank(rank, rank, 0, 2, 2) for rank in range(2))  # the ranks of the smallest job
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Mod": operator.mod,
    "FloorDiv": operator.floordiv,
}
# Tensors by the place of their shape, and functions that keep the length of their first argument.
SHAPED = {**dict.fromkeys(("randn", "rand", "zeros", "ones", "empty"), 0), "full": 0, "randperm": 0, "randint": 2}
KEEPING = {"torch.utils.data.TensorDataset", "torch.tensor", "torch.as_tensor", "torch.from_numpy", "torch.sin"}
LONGEST = 1 << 24


def is_even(count: Key) -> bool:
    """Return whether two ranks surely have the same number of rounds or elements."""
    first, second = (number(count, rank) for rank in PAIR)
    return first is not None and first == second


def number(key: Key, rank: Rank) -> int | None:
    """Return the whole number that a value is on a rank, None if it does not follow."""
    match key.op, key.args:
        case "constant", (value,):
            return value if type(value) is int else None
        case "rank", (kind, *_):
            return {"global": rank.rank, "spawned": rank.rank, "local": rank.local}.get(kind)
        case "world", _:
            return rank.world_size
        case "length", parts:
            return _of_built(list(parts), rank)
        case "unary", ("USub", inner):
            value = number(inner, rank)
            return None if value is None else -value
        case "binary", (name, left, right) if name in OPERATIONS:
            return _computed(OPERATIONS[name], number(left, rank), number(right, rank))
        case (("min" | "max"), (left, right)):
            return _computed(min if key.op == "min" else max, number(left, rank), number(right, rank))
        case "attribute", (_, _, default):  # an option of the program
            return number(default, rank)
        case _:
            return None


def length(key: Key, rank: Rank) -> int | None:
    """Return the number of elements that a value has on a rank, None if it does not follow."""
    match key.op, key.args:
        case "constant", (value,):
            return len(value) if isinstance(value, str | tuple) else None
        case "sequence", elements:
            return len(elements)
        case "elements", (count, *_):
            return count
        case "range", bounds:
            return _of_range([number(each, rank) for each in bounds])
        case "item", (held, Key(op="slice", args=bounds)):
            return _of_slice(length(held, rank), [_bound(each, rank) for each in bounds])
        case "enumerate", (held,):
            return length(held, rank)
        case "binary", ("Mult", left, right):
            return _computed(operator.mul, length(left, rank), number(right, rank))
        case "binary", (_, left, right):
            return length(left, rank) or length(right, rank)
        case "loader", (_, _, _, held, batch):
            return _of_batches(length(held, rank), number(batch, rank))
        case "built", (count, *rest):
            return _of_built(rest[:count], rank)
        case "call", (str() as name, *given):
            return _of_call(name, given, rank)
        case _:
            return None


def _computed(operation: Callable[[int, int], int], left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    try:
        value = operation(left, right)
    except ZeroDivisionError:
        return None
    return value if abs(value) < LONGEST else None


def _of_range(bounds: list[int | None]) -> int | None:
    known = [each for each in bounds if each is not None]
    return len(range(*known)) if len(known) == len(bounds) in (1, 2, 3) and 0 not in known[2:] else None


def _bound(key: Key, rank: Rank) -> tuple[int | None, bool]:
    """Return a bound of a slice, and whether it is known."""
    value = number(key, rank)
    return value, value is not None or (key.is_constant and key.value is None)


def _of_slice(held: int | None, bounds: list[tuple[int | None, bool]]) -> int | None:
    if held is None or not all(known for _, known in bounds) or bounds[2][0] == 0:
        return None
    return len(range(held)[slice(*(value for value, _ in bounds))])


def _of_batches(samples: int | None, size: int | None) -> int | None:
    return -(-samples // size) if samples is not None and size else None


def _of_built(parts: list[Key], rank: Rank) -> int | None:
    """Return the number of elements that one loop makes, all or every n-th by their number."""
    if not parts:
        return 1
    held, *tests = parts
    whole = length(held, rank)
    for test in tests:
        if test.is_constant and test.value is True:
            continue
        if whole is None or held.op != "enumerate":
            return None
        wanted = "Eq"
        if test.op == "not":
            test, wanted = test.args[0], "NotEq"
        match test.op, test.args:
            case "compare", (name, Key(op="binary", args=("Mod", Key(op="number"), step)), first) if name == wanted:
                whole = _of_every(whole, number(first, rank), number(step, rank))
            case _:
                return None
    return whole


def _of_every(whole: int, first: int | None, step: int | None) -> int | None:
    return len(range(first, whole, step)) if first is not None and step and 0 <= first < step else None


def _of_call(name: str, given: list[Key], rank: Rank) -> int | None:
    short = name.removeprefix("torch.")
    if name in KEEPING and given:
        return length(given[0], rank)
    if name.endswith("utils.data.Subset") and len(given) > 1:
        return length(given[1], rank)
    if short in SHAPED and len(given) > SHAPED[short]:
        shape = given[SHAPED[short]]
        return number(shape.args[0] if shape.op == "sequence" and shape.args else shape, rank)
    if short == "arange":
        return _of_range([number(each, rank) for each in given[:3]])
    if short == "linspace" and len(given) > 2:
        return number(given[2], rank)
    return None
