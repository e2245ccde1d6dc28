"""Numbers of rounds and elements: whether they are the same for ranks whose bounds differ."""

from .keys import BY_RANK, DIFFERS, LOCAL, Key, Keys, is_text, parts, parts_entered
from .library_calls import RANDOM

Terms = dict[tuple[int, ...], int]  # factors, by the identity of their keys, and how often they are added
MOST_TERMS = 16
BATCH = "a batch"
PIECES_OF_SIZE = "pieces of one size"  # of a tensor, with its key and the size
NEARLY_EQUAL = "pieces of which the first ones have one row more"
UNCOUNTED = "pieces of a part of unknown length"  # which ranks may have shared out evenly
SPLIT = "a part of a split"  # of a data set, with its place and its length
PIECES = ("pieces", PIECES_OF_SIZE)
SHUFFLED = "shuffled"  # a sequence in another order
NEW_TENSORS = {
    f"torch.{name}"
    for name in ("arange", "empty", "full", "ones", "rand", "randint", "randn", "randperm", "tensor", "zeros")
}
OF_SIZES = {f"torch.{name}" for name in ("empty", "ones", "rand", "randn", "zeros")}  # given as first arguments
DISTINCT = "distinct"  # a set or a mapping with one member for each of the data of a rank that differ


def is_as_long(first: Key, second: Key) -> bool:
    """Return whether two lengths are those of ranges with one distance between their bounds."""
    bounds = _bounds(first), _bounds(second)
    if bounds[0] is None or bounds[1] is None or bounds[0][2] is not bounds[1][2]:
        return False
    distances = [_sum(_terms(stop), _terms(start), -1) for start, stop, _ in (bounds[0], bounds[1])]
    return distances[0] == distances[1]


def is_shared_out(key: Key) -> bool:
    """Return whether a sequence is every n-th of pieces of which there are a multiple of n."""
    if key.op != "item" or key.args[0].op != "pieces" or key.args[1].op != "slice":
        return False
    count, step = key.args[0].args[-1], key.args[1].args[2]
    return count.op == "binary" and count.args[0] == "Mult" and step in count.args[1:]


def is_whole_share(key: Key) -> bool:
    """Return whether a sequence is the rank's part of another, as long as the whole quotient by the number of ranks."""
    while key.op == "enumerate":
        key = key.args[0]
    if key.op != "item" or key.args[1].op != "slice":
        return False
    held, (start, stop, step) = key.args[0], key.args[1].args
    if not step.is_constant or step.value not in (None, 1):
        return False
    for part in parts(start):
        match part.op, part.args:
            case "binary", ("FloorDiv", Key(op="length", args=(counted,)), Key(op="world")) if counted is held:
                first, size = _terms(start), {(id(part),): 1}
                ranks = [each for each in parts(start) if each.op == "rank"]
                by_rank = any(first == {tuple(sorted((id(each), id(part)))): 1} for each in ranks)
                return by_rank and _sum(_terms(stop), first, -1) == size
            case _:
                pass
    return False


def is_dealt_out(key: Key) -> bool:
    """Return whether a sequence is made of every n-th element of another, n with the number of ranks in it."""
    steps = (part.args[2] for part in parts(key) if part.op in ("slice", "range") and len(part.args) > 2)
    return any(any(part.op == "world" for part in parts(step)) for step in steps)


def has_unknown_step(key: Key) -> bool:
    """Return whether every n-th element is taken somewhere, and it is not known whether n is the number of ranks."""
    steps = (part.args[2] for part in parts(key) if part.op in ("slice", "range") and len(part.args) > 2)
    return any(not step.is_constant and all(part.op != "world" for part in parts(step)) for step in steps)


def has_unknown_stop(key: Key) -> bool:
    """Return whether every n-th element is taken up to a number that follows from no length.

    It may be chosen so that the ranks get as many.
    """
    stops = (part.args[1] for part in parts(key) if part.op == "slice" and len(part.args) > 2 and is_dealt_out(part))
    return any(not stop.is_constant and all(part.op != "length" for part in parts(stop)) for stop in stops)


def is_dealt_stream(key: Key) -> bool:
    """Return whether a sequence is every n-th element of what a generator yields, of which the number is not known."""
    return key.op == "item" and key.args[0].op == "built" and key.args[1].op == "slice" and is_dealt_out(key.args[1])


def is_dealt_by_test(key: Key) -> bool:
    """Return whether a sequence is made of those numbers of a range that have a certain rest by that of the ranks."""
    if key.op != "built" or key.args[0] != 2 or key.args[1].op != "range":
        return False
    divided = (part for part in parts(key.args[2]) if part.op == "binary" and part.args[0] == "Mod")
    return any(any(part.op == "world" for part in parts(each.args[2])) for each in divided)


def is_dealt_to_workers(key: Key) -> bool:
    """Return whether a sequence is every n-th element of another, n with the number of workers of a loader in it."""
    steps = (part.args[2] for part in parts(key) if part.op == "slice")
    return any(part.op == "attribute" and part.args[1] == "num_workers" for step in steps for part in parts(step))


def _bounds(length: Key) -> tuple[Key | None, Key, Key | None] | None:
    """Return the first bound, the last and the step of a range, if a length is that of one."""
    if length.op != "length" or len(length.args) != 1 or length.args[0].op != "range":
        return None
    bounds = length.args[0].args
    if len(bounds) == 1:
        return None, bounds[0], None
    return bounds[0], bounds[1], bounds[2] if len(bounds) > 2 else None


def _terms(key: Key | None) -> Terms:
    """Return a number as a sum of products."""
    if key is None:
        return {}
    if key.is_constant and type(key.value) is int:
        return {(): key.value} if key.value else {}
    if key.op == "binary" and key.args[0] in ("Add", "Sub", "Mult"):
        name, left, right = key.args
        first, second = _terms(left), _terms(right)
        if name != "Mult":
            return _sum(first, second, 1 if name == "Add" else -1)
        if len(first) * len(second) <= MOST_TERMS:
            product: Terms = {}
            for factors, times in first.items():
                for others, more in second.items():
                    product = _sum(product, {tuple(sorted((*factors, *others))): times * more}, 1)
            return product
    return {(id(key),): 1}


def _sum(first: Terms, second: Terms, sign: int) -> Terms:
    added = {factors: first.get(factors, 0) + sign * second.get(factors, 0) for factors in {**first, **second}}
    return {factors: times for factors, times in added.items() if times}


def lengthwise(keys: Keys, key: Key) -> Key:
    """Return a sequence without the values of its elements: what decides its length."""
    if key.op == SHUFFLED:
        return lengthwise(keys, key.args[0])
    if key.differs_by & DIFFERS:
        match key.op, key.args:
            case "appended", (before, *_):
                return keys.make("appended", lengthwise(keys, before))
            case "extended", (before, _, count):
                return keys.make("extended", lengthwise(keys, before), count)
            case "built", (count, *rest):
                return keys.make("built", count, *(lengthwise(keys, each) for each in rest[:count]))
            case "if", (test, then, other):
                return keys.make("if", test, lengthwise(keys, then), lengthwise(keys, other))
            case "changing", _:
                return keys.make(
                    "changing", *(lengthwise(keys, arg) if isinstance(arg, Key) else arg for arg in key.args)
                )
            case _:
                pass
    return key


def is_of_batch(key: Key) -> bool:
    """Return whether a value is a batch of a loader or a part of one."""
    while key.op in ("item", "element", "attribute", "changed", "appended", "extended", "next"):
        key = key.args[0]
    return key.op == "local" and key.args[0] == BATCH


def is_of_data(key: Key) -> bool:
    """Return whether data of a rank decide a value, rather than its number."""
    return bool(key.differs_by & LOCAL) or any(map(_is_part_of_rank, parts_entered(key, _depends_on_rank)))


def _depends_on_rank(key: Key) -> bool:
    return bool(key.differs_by & BY_RANK)


def _is_part_of_rank(key: Key) -> bool:
    """Return whether a value is an element or a part of data that the rank chooses."""
    if not key.differs_by & BY_RANK:
        return False
    is_part = key.op == "item" and (key.args[1].op == "slice" or key.args[0].op in PIECES)
    if key.op == "item" and key.args[0].op == "sequence" and key.args[1].op == "rank":
        return all(each.op == "sequence" or is_text(each) for each in key.args[0].args)
    chosen = key.op == "if" and bool(key.args[0].differs_by & BY_RANK) and all(map(_is_tensor, key.args[1:]))
    return is_part or chosen or key.op == "element"


def _is_tensor(key: Key) -> bool:
    """Return whether a value is a new tensor, or computed from one."""
    if key.op in ("binary", "unary"):
        return any(isinstance(part, Key) and _is_tensor(part) for part in key.args[1:])
    return key.op == "call" and key.args[0] in NEW_TENSORS


def is_of_parts(key: Key) -> bool:
    """Return whether a comprehension takes the rank's part of each element."""
    return key.op == "built" and len(key.args) == key.args[0] + 2 and key.args[-1].op == "item"


def holds_data(key: Key) -> bool:
    """Return whether the elements of a sequence are data of one rank."""
    return key.op not in ("range", "number") and is_of_data(key)


UNCERTAIN = {"changing", "altered", "one of", "recursive", "deep"}  # values of which not every part is known


def is_certain(key: Key) -> bool:
    """Return whether all parts of a value are known expressions."""
    return key.op not in UNCERTAIN and all(is_certain(arg) for arg in key.args if isinstance(arg, Key))


def rows_of(key: Key) -> Key | None:
    """Return the number of rows of a new tensor, None if it is not written out as the first of its sizes."""
    if key.op == "local" and key.args[0] == RANDOM:
        return key.args[-1] if isinstance(key.args[-1], Key) else None
    if key.op != "call" or key.args[0] not in OF_SIZES or len(key.args) < 2:
        return None
    sizes = key.args[1]
    return sizes.args[0] if sizes.op == "sequence" and sizes.args else sizes


def is_made_of(key: Key, differs_by: int, *, counted: bool = False) -> bool:
    """Return whether a value is computed from a rank or from data of one, not only chosen by it.

    ``counted``: of a tensor with data of one rank only the number of rows counts. A value that is too deep to be known
    does not count.
    """
    if not key.differs_by & differs_by:
        return False
    counted = key.op not in ("range", "slice") and (counted or key.op == "length")
    if key.op == "local" and not counted:
        return bool(differs_by & LOCAL)
    given = key.args[1:] if key.op == "if" else key.args
    if counted and key.op == "built":
        given = key.args[1 : 1 + key.args[0]]  # the elements do not decide how many there are
    parts = [part for part in given if isinstance(part, Key)]
    return (
        any(is_made_of(part, differs_by, counted=counted) for part in parts) if parts else key.op not in ("if", "deep")
    )


def is_number_range(key: Key) -> bool:
    """Return whether all bounds of a range, or all elements of a list, are numbers or the number of ranks."""
    return key.op in ("range", "sequence") and all(arg.op in ("constant", "world") for arg in key.args)


def is_stepped_by_data(key: Key) -> bool:
    """Return whether data of one rank decide when a number takes its next value, computed from the one before."""
    tests = (part for part in parts(key) if part.op == "if" and part.args[0].differs_by & LOCAL)
    return any(
        side.op != "held" and any(each.op == "held" for each in parts(side)) for test in tests for side in test.args[1:]
    )


def sized_by_data(key: Key) -> Key | None:
    """Return the bound of the slice that a sequence or a data set is, if data of one rank step it."""
    while True:
        match key.op, key.args:
            case "call", (str() as name, _, Key() as held, *_) if name.endswith("utils.data.Subset"):
                key = held
            case "loader", (_, _, _, Key() as held, *_):
                key = held
            case "item", (_, Key(op="slice", args=bounds)):
                return next((each for each in bounds if is_stepped_by_data(each)), None)
            case _:
                return None
