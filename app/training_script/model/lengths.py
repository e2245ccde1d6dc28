"""Numbers and lengths that follow from what a program writes out: how many elements or batches a rank gets."""

import operator
from collections.abc import Callable

from .amounts import NEARLY_EQUAL, PIECES_OF_SIZE, SPLIT, is_of_batch
from .keys import COMPARE, DIFFERS, TOUCHED, Accumulated, Key
from .keys import parts as parts_of
from .members import PAIR, Member
from .piece_lengths import (
    OPERATIONS,
    compute,
    count_batches,
    count_every,
    count_pieces,
    cut_length,
    equal_part_length,
    part_of_size,
    piece_length,
    range_length,
    slice_length,
)

# Tensors by the place of their shape, and functions that keep the length of their first argument.
SHAPED = {**dict.fromkeys(("randn", "rand", "zeros", "ones", "empty"), 0), "full": 0, "randperm": 0, "randint": 2}
KEEPING = {
    "torch.utils.data.TensorDataset",
    "torch.nn.functional.one_hot",
    "torch.tensor",
    "torch.as_tensor",
    "torch.from_numpy",
}
# What computes one element for each, as a function or a method of a tensor; and what reduces other dimensions.
ELEMENTWISE = {"abs", "cos", "exp", "log", "neg", "pow", "relu", "round", "sigmoid", "sign", "sin", "sqrt", "tanh"}
ELEMENTWISE |= {"softmax", "square", "cumsum", "unsqueeze", "squeeze", "add", "sub", "mul", "div", "where"}
REDUCING = {"amax", "amin", "argmax", "argmin", "mean", "norm", "prod", "std", "sum"}
KEEPING |= {f"torch.{name}" for name in ELEMENTWISE - {"unsqueeze", "squeeze", "where"}}
FORWARD = "forward"  # of a module that gives one row for each that it gets
LISTS = {
    "sequence",
    "elements",
    "built",
    "appended",
    "extended",
}  # which a product repeats; of a tensor it keeps the length
CONDITIONS = {"compare", "not", "and", "or", "constant"}
FLAT = {"arange", "linspace", "randperm"}  # tensors of one dimension
RESHAPE = "torch.reshape"
JOINING = {"cat", "concat", "concatenate", "vstack", "hstack"}
PUBLIC = ("torchvision.datasets.", "torchaudio.datasets.", "datasets.load_dataset")  # data sets that all ranks read
WORKER = "a worker"  # what ``get_worker_info`` returns


def number(key: Key, rank: Member) -> int | None:
    """Return the whole number that a value is on a rank, None if it does not follow."""
    value = _number(key, rank)
    return rank.assumed.number(key) if value is None and rank.assumed else value


def _number(key: Key, rank: Member) -> int | None:
    match key.op, key.args:
        case "constant", (value,):
            return value if type(value) is int else None
        case "rank", (kind, *_):
            return rank.rank if kind in ("global", "spawned", "local") else None
        case "world", _:
            return rank.world_size
        case "number", (path, line, *_) if rank.counters is not None:
            return next((value for *place, value in reversed(rank.counters) if place == [path, line]), None)
        case "number", _:
            return rank.counter
        case "length", parts:
            return _of_built(list(parts), rank)
        case "unary", ("USub", inner):
            value = number(inner, rank)
            return None if value is None else -value
        case "binary", (name, left, right) if name in OPERATIONS:
            return compute(OPERATIONS[name], number(left, rank), number(right, rank))
        case "call", ("math.ceil", Key(op="binary", args=("Div", left, right))):
            return compute(lambda total, parts: -(-total // parts), number(left, rank), number(right, rank))
        case "call", ("math.floor", Key(op="binary", args=("Div", *_)) as quotient):
            return number(quotient, rank)
        case (("min" | "max"), (left, right)):
            return compute(min if key.op == "min" else max, number(left, rank), number(right, rank))
        case "attribute", (Key(op=op), name) if op == WORKER and name in ("id", "num_workers"):
            return rank.worker if name == "id" else rank.workers
        case "attribute", (_, _, Key(op="constant", args=(str() as text,))):  # a variable of the environment
            return int(text) if text.isascii() and text.isdigit() else None
        case "attribute", (_, _, default):  # an option of the program
            return number(default, rank)
        case "one of", (first, *others):
            value = number(first, rank)
            return value if all(number(each, rank) == value for each in others) else None
        case "if", (test, then, other):
            return _of_sides(number, test, then, other, rank)
        case "item", (Key(op="mapping" | "sequence") as held, place):
            chosen = element_on(held, place, rank)
            return number(chosen, rank) if chosen else None
        case _:
            return _of_counter(key.accumulated, rank) if key.accumulated else None


def truth(key: Key, rank: Member) -> bool | None:
    """Return whether a condition holds on a rank, None if that does not follow."""
    held = _truth(key, rank)
    return rank.assumed.truth(key) if held is None and rank.assumed else held


def _truth(key: Key, rank: Member) -> bool | None:
    match key.op, key.args:
        case "constant", (value,):
            return bool(value)
        case op, _ if op == WORKER:
            return rank.workers > 1
        case "compare", ("Is" | "IsNot" as name, Key(op=op), Key(op="constant", args=(None,))) if op == WORKER:
            return (rank.workers > 1) == (name == "IsNot")
        case "not", (inner,):
            held = truth(inner, rank)
            return None if held is None else not held
        case (("and" | "or"), (left, right)):
            decides, held = key.op == "or", [truth(left, rank), truth(right, rank)]
            return decides if decides in held else None if None in held else not decides
        case "compare", (name, left, right) if name in COMPARE and name not in ("In", "NotIn"):
            first, second = _compared(left, rank), _compared(right, rank)
            return None if first is None or second is None else bool(COMPARE[name](first, second))
        case "binary", _:
            value = _number(key, rank)
            return None if value is None else value != 0
        case _:
            return None


def _compared(key: Key, rank: Member) -> float | None:
    """Return a number in a condition: one that is written out, the default of an option, or a whole number."""
    match key.op, key.args:
        case "binary", ("Div", *_):
            return None  # not whole
        case ("constant", (float() as value,)) | ("attribute", (_, _, Key(op="constant", args=(float() as value,)))):
            return value
        case _:
            return number(key, rank)


def length(key: Key, rank: Member) -> int | None:
    """Return the number of elements that a value has on a rank, None if it does not follow."""
    value = _length(key, rank)
    return rank.assumed.length(key) if value is None and rank.assumed else value


def _length(key: Key, rank: Member) -> int | None:
    match key.op, key.args:
        case "constant", (value,):
            return len(value) if isinstance(value, (str, tuple)) else None
        case "sequence", elements:
            return len(elements)
        case "elements", (count, *_):
            return count
        case "range", bounds:
            return range_length([number(each, rank) for each in bounds])
        case "item", (held, Key(op="slice", args=bounds)):
            known = [_bound(each, rank) for each in bounds]
            whole = length(held, rank)
            return slice_length(whole, known) if whole is not None else cut_length(known)
        case "item", (held, Key(op="sequence", args=(Key(op="slice", args=bounds), *_))):
            return slice_length(length(held, rank), [_bound(each, rank) for each in bounds])
        case "item", (Key(op="sequence" | "mapping") as held, Key() as place) if element := element_on(
            held, place, rank
        ):
            return length(element, rank)
        case "item", (_, Key(op="item" | "call" | "range" | "if") as chosen):  # by a list of places
            return length(chosen, rank)
        case "item", (Key(op="call", args=("numpy.array_split", whole, count)), place):
            return equal_part_length(length(whole, rank), number(count, rank), number(place, rank))
        case "appended", (held, _):
            return compute(operator.add, length(held, rank), 1)
        case "extended", (held, _, count):
            return compute(operator.add, length(held, rank), number(count, rank))
        case "zip", (_, *_):
            found = [length(each, rank) for each in key.args]
            known = [each for each in found if each is not None]
            return min(known) if len(known) == len(found) else None
        case (("enumerate" | "rows" | "shuffled"), (held, *_)):
            return length(held, rank)
        case "compare", (_, left, right):
            return length(left, rank) or length(right, rank)
        case "binary", ("Mult", Key(op=op) as left, right) if op in LISTS:
            return compute(operator.mul, length(left, rank), number(right, rank))
        case "binary", ("Mult", left, Key(op=op) as right) if op in LISTS:
            return compute(operator.mul, number(left, rank), length(right, rank))
        case "binary", ("Add", left, right) if _are_lists(left, right):
            return compute(operator.add, length(left, rank), length(right, rank))
        case "binary", ("MatMult", left, _):
            return length(left, rank) if _is_matrix(left) else None
        case "binary", (_, left, right):
            return length(left, rank) or length(right, rank)
        case "mapping", pairs:
            return len(pairs) // 2
        case "sized", (*_, Key(op="sequence", args=(rows, *_))):
            return number(rows, rank)
        case "local", (_, _, _, _, shape):  # random numbers
            return number(shape, rank) if isinstance(shape, Key) else None
        case op, (*_, count) if op == SPLIT:
            return number(count, rank)
        case "loader", (_, _, _, held, batch, *drops):
            return count_batches(length(held, rank), number(batch, rank), drops=bool(drops))
        case "built", (count, *rest):
            return _of_built(rest[:count], rank)
        case "call", (str() as name, *given):
            return _of_call(name, given, rank)
        case "if", (test, then, other):
            return _of_sides(length, test, then, other, rank)
        case "pieces", (_, _, _, count) if rank.assumed:
            return number(count, rank)
        case "pieces", (_, _, _, Key() as whole, count):
            return count_pieces(length(whole, rank), number(count, rank))
        case "pieces", (_, _, _, str(), _, count):
            return number(count, rank)
        case "item", (Key(op="pieces", args=(_, _, _, str() as how, whole, count)), place) if how == NEARLY_EQUAL:
            return equal_part_length(length(whole, rank), number(count, rank), number(place, rank))
        case op, (_, _, _, Key() as whole, size) if op == PIECES_OF_SIZE:
            return count_batches(length(whole, rank), number(size, rank), drops=False)
        case "item", (Key(op=op, args=(*_, Key() as whole, size)), place) if op == PIECES_OF_SIZE:
            return part_of_size(length(whole, rank), number(size, rank), number(place, rank))
        case "item", (Key(op="pieces", args=(*_, Key() as whole, count)), place):
            return piece_length(length(whole, rank), number(count, rank), number(place, rank))
        case _:
            return _of_list(key.accumulated, rank) if key.accumulated else None


def _is_matrix(tensor: Key) -> bool:
    """Return whether a tensor surely has two dimensions or more: a new one, or some of its rows."""
    tensor = _sliced(tensor)
    name = str(tensor.args[0]).removeprefix("torch.") if tensor.op == "call" else ""
    sizes = tensor.args[SHAPED[name] + 1 :] if name in SHAPED and name != "randperm" else ()
    sizes = sizes[0].args if sizes and sizes[0].op == "sequence" else sizes
    return sum(number(each, PAIR[0]) is not None for each in sizes) > 1


def _are_lists(left: Key, right: Key) -> bool:
    """Return whether ``+`` makes a longer sequence of two: of lists, or of one and a part of it."""
    of_part = left is not right and (_sliced(right) is left or _sliced(left) is right)
    return of_part or _sliced(left).op in LISTS or _sliced(right).op in LISTS


def _sliced(key: Key) -> Key:
    """Return the sequence that slices are taken of."""
    while key.op == "item" and key.args[1].op == "slice":
        key = key.args[0]
    return key


def numbers(held: Key, rank: Member) -> range | None:
    """Return the numbers that a range has, or a loop over one counts, on a rank; None if they do not follow."""
    if held.op == "length" and len(held.args) == 1:
        held = held.args[0]
    if held.op != "range":
        return None
    bounds = [number(each, rank) for each in held.args]
    known = [each for each in bounds if each is not None]
    return range(*known) if len(known) == len(bounds) and 0 not in known[2:] else None


def counts_rounds(key: Key, path: str, line: int) -> bool:
    """Return whether a value is the number of the round of the loop at a place."""
    return key.op == "number" and key.args[:2] == (path, line)


def _of_sides(of: "Callable[[Key, Member], int | None]", test: Key, then: Key, other: Key, rank: Member) -> int | None:
    """Return the number or the length of what a condition chooses."""
    held = truth(test, rank)
    side = rank.side if held is None else held
    if side is not None:
        return of(then if side else other, rank)
    first, second = of(then, rank), of(other, rank)
    return first if first == second else None


def element_on(held: Key, place: Key, rank: Member) -> Key | None:
    """Return what is at a place of a list, or under a name or number of a mapping, on a rank.

    A number that is none of the names of a mapping is a place in the list of its names.
    """
    match place.op, place.args:
        case "item", (Key(op="sequence" | "mapping") as inner, Key() as chosen):
            place = element_on(inner, chosen, rank) or place
        case _:
            pass
    at = place.value if place.is_constant else number(place, rank)
    if held.op == "sequence":
        return held.args[at] if isinstance(at, int) and -len(held.args) <= at < len(held.args) else None
    names = held.args[::2]
    known = dict(zip((each.value for each in names), held.args[1::2], strict=True))
    if at in known:
        return known[at]
    named = all(isinstance(each, str) for each in known)
    return names[at] if named and isinstance(at, int) and -len(names) <= at < len(names) else None


def _of_counter(accumulated: Accumulated, rank: Member) -> int | None:
    """Return a number to which each round of a loop adds one."""
    match accumulated.after.op, accumulated.after.args:
        case "binary", ("Add", over, more) if over is accumulated.over:
            added = compute(operator.mul, number(accumulated.rounds, rank), number(more, rank))
            return compute(operator.add, number(accumulated.first, rank), added)
        case _:
            return None


def _of_list(accumulated: Accumulated, rank: Member) -> int | None:
    """Return the length of a list that each round of a loop makes longer by one."""
    if accumulated.after.op != "appended" or accumulated.after.args[0] is not accumulated.over:
        return None
    return compute(operator.add, length(accumulated.first, rank), number(accumulated.rounds, rank))


def samples(count: Key, rank: Member) -> int | None:
    """Return how many samples a rank gets in a loop over a loader, or the pieces of a tensor, None if not known."""
    if count.op != "length" or len(count.args) != 1:
        return None
    held = count.args[0]
    while held.op in ("enumerate", "zip") and held.args:
        held = held.args[0]
    return _samples_of(held, rank)


def _samples_of(held: Key, rank: Member) -> int | None:
    if held.op not in ("loader", PIECES_OF_SIZE) or len(held.args) <= 3:
        return None
    if held.op == "loader" and len(held.args) > 5:  # it leaves out the last ones
        return compute(operator.mul, length(held, rank), number(held.args[4], rank))
    return length(held.args[3], rank)


def _appended(after: Key) -> Key:
    """Return what a round of a loop adds to a list, the list itself if it is not one element."""
    match after.op, after.args:
        case "appended", (_, added):
            return added
        case "binary", ("Add", _, Key(op="sequence", args=(added,))):
            return added
        case _:
            return after


def has_rows_of_batch(key: Key) -> bool:
    """Return whether a value has one row for each sample of a batch of a loader, or of a piece of a tensor."""
    while key.rows_of is not None:
        key = key.rows_of
    return is_of_batch(key) or (key.op == "element" and key.args[0].op == PIECES_OF_SIZE)


def _of_joined(held: Key, rank: Member) -> int | None:
    """Return the length of parts of tensors in a row: elements of a sequence, or parts of all batches of a loader."""
    in_batches = held.op == "built" and held.args[0] == 1 and held.args[1].op in ("loader", PIECES_OF_SIZE)
    if in_batches and has_rows_of_batch(held.args[2]):
        return _samples_of(held.args[1], rank)
    if held.op == "sequence":
        found = [length(each, rank) for each in held.args]
        known = [each for each in found if each is not None]
        return sum(known) if len(known) == len(found) else None
    accumulated = held.accumulated
    if accumulated is None or not has_rows_of_batch(_appended(accumulated.after)):
        return None
    return samples(accumulated.rounds, rank) if length(accumulated.first, rank) == 0 else None


def _bound_of_tensor(key: Key, rank: Member) -> int | None:
    """Return a bound of ``torch.arange``, which may be written as a float to get floats."""
    whole = key.is_constant and isinstance(key.value, float) and key.value.is_integer()
    return int(key.value) if whole else number(key, rank)


def _bound(key: Key, rank: Member) -> tuple[int | None, bool]:
    """Return a bound of a slice, and whether it is known."""
    value = number(key, rank)
    return value, value is not None or (key.is_constant and key.value is None)


def _of_built(parts: list[Key], rank: Member) -> int | None:
    """Return the number of elements that loops make, or one makes of every n-th by its number."""
    if not parts:
        return 1
    held, *tests = parts
    whole = length(held, rank)
    if any(each.op not in CONDITIONS for each in tests):  # other loops in each round of this one
        for each in tests:
            whole = compute(operator.mul, whole, length(each, rank) if each.op not in CONDITIONS else None)
        return whole
    for test in tests:
        if test.is_constant and test.value is True:
            continue
        by_ranks = held.op == "range" and len(held.args) == 1 and any(part.op == "world" for part in parts_of(test))
        if whole is None or not (held.op == "enumerate" or by_ranks):
            return None
        wanted = "Eq"
        if test.op == "not":
            test, wanted = test.args[0], "NotEq"
        match test.op, test.args:
            case "compare", (name, Key(op="binary", args=("Mod", Key(op="number"), step)), first) if name == wanted:
                whole = count_every(whole, number(first, rank), number(step, rank))
            case _:
                return None
    return whole


def keeps_rows(method: str, given: list[Key]) -> bool:
    """Return whether a method of a tensor gives one with as many rows."""
    if method in ELEMENTWISE:
        return not (given and given[0].is_constant and given[0].value == 0)
    return method in REDUCING and bool(given) and given[0].is_constant and given[0].value in (1, 2, 3, -1)


def _of_call(name: str, given: list[Key], rank: Member) -> int | None:
    short = name.removeprefix("torch.")
    if name in KEEPING and given:
        return length(given[0], rank)
    if name.endswith("utils.data.Subset") and len(given) > 1:
        return length(given[1], rank)
    if short in SHAPED and len(given) > SHAPED[short]:
        shape = given[SHAPED[short]]
        return number(shape.args[0] if shape.op == "sequence" and shape.args else shape, rank)
    if name == RESHAPE and len(given) > 1:
        return _of_reshaped(given[0], given[1:], rank)
    if short in JOINING and given:
        return _of_joined(given[0], rank)
    if short == "stack" and given:
        return length(given[0], rank)
    if name == "numpy.array_split" and len(given) > 1:
        return number(given[1], rank)
    if name == "numpy.random.permutation" and given:
        return number(given[0], rank) if number(given[0], rank) is not None else length(given[0], rank)
    if short in ("arange", "numpy.arange"):
        bounds = [each for each in given if each.op != "library"]  # the type and the device of the elements
        return range_length([_bound_of_tensor(each, rank) for each in bounds[:3]])
    if short == "linspace" and len(given) > 2:
        return number(given[2], rank)
    return None


def _of_reshaped(whole: Key, shape: list[Key], rank: Member) -> int | None:
    """Return the number of rows of a tensor in another shape; -1 of them take what the others leave of one row."""
    if shape[0].op == "sequence":
        shape = list(shape[0].args)
    rows = number(shape[0], rank) if shape else None
    if rows is None or rows >= 0:
        return rows
    flat = whole.op == "call" and str(whole.args[0]).removeprefix("torch.") in FLAT
    elements = length(whole, rank) if flat and rows == -1 else None
    for each in shape[1:]:
        size = number(each, rank)
        elements = compute(operator.floordiv, elements, size) if size else None
    return elements


def is_same_data(held: Key) -> bool:
    """Return whether the samples of a data set are surely the same on all ranks, by what it is made of."""
    if held.differs_by & (DIFFERS | TOUCHED):
        return False
    match held.op, held.args:
        case op, (*_, whole, _) if op == SPLIT:
            return is_same_data(whole)
        case "call", (str() as name, Key() as whole, _) if name.endswith("utils.data.Subset"):
            return is_same_data(whole)
        case "call", (str() as name, *_) if name.startswith(PUBLIC):
            return True
        case _:
            return length(held, PAIR[0]) is not None
