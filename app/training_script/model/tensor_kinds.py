"""Types and shapes of tensors, as far as a program writes them out."""

from .amounts import PIECES
from .array_types import is_array, type_of_array
from .keys import BY_RANK, WITH_SIZES, Key, Keys, Rank
from .lengths import FORWARD, length, number, truth
from .members import Member
from .piece_lengths import range_length

Shape = tuple[int | None, ...]
COUNTS = {"length", "rank", "world"}  # numbers that ``float`` leaves as they are
MOST_BOUNDS = 2  # of a range of numbers, whose step is 1
FLOAT, WHOLE, TRUTH = "float32", "int64", "bool"
# Functions of torch by the type of what they make without ``dtype``, all but the last with a shape as they are given.
SHAPED: dict[str, str] = dict.fromkeys(["zeros", "ones", "empty", "rand", "randn"], FLOAT)
OF_NUMBERS = {"randint": WHOLE, "randperm": WHOLE, "full": None, "arange": None, "tensor": None}
LIKE = {"zeros_like", "ones_like", "empty_like", "rand_like", "randn_like"}
OF_ARRAYS = {"from_numpy", "tensor", "as_tensor"}
OF_ANY_TYPE = {"mean", FORWARD}  # what gives elements of another type than those of the tensor
PLACES = {"argmax", "argmin", "argsort"}
MADE = {*SHAPED, *OF_NUMBERS, *OF_ARRAYS}
CASTS = {"float": FLOAT, "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": WHOLE, "int": "int32"}
ALIASES = {"float": FLOAT, "double": "float64", "half": "float16", "long": WHOLE, "int": "int32", "short": "int16"}
TYPES = {FLOAT, "float64", "float16", "bfloat16", WHOLE, "int32", "int16", "int8", "uint8", TRUTH, "uint16", "uint32"}
TYPES |= {"uint64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"}
SPECTRA, OF_REAL_SPECTRA = "fft.", {"irfft", "irfft2", "irfftn", "hfft", "fftfreq", "rfftfreq"}
CAST = "cast"  # to a type that depends on the rank
SIZED = "sized"  # a result whose shape is known
WITH_SHAPE = {"if", "cast", "rows", "binary", SIZED, "element", "item", "call"}  # values that may have a known shape
# Modules that keep the shape of what they get.
SAME_SHAPE = {"ReLU", "GELU", "Tanh", "Sigmoid", "SiLU", "Dropout", "LayerNorm", "Identity", "LeakyReLU", "Softmax"}


def type_of(key: Key, keys: Keys, rank: Rank) -> str | None:
    """Return the type of the elements of a tensor on a rank, None if it is not written out."""
    match key.op, key.args:
        case "if", (test, then, other):
            held = truth(keys.specialise(test, rank), _member(rank))
            first, second = (type_of(each, keys, rank) for each in (then, other))
            return first if held or first == second else second if held is False else None
        case "binary", (name, left, right) if name in ("Add", "Sub", "Mult"):
            types = {type_of(each, keys, rank) for each in (left, right) if not _is_number(each)}
            return types.pop() if len(types) == 1 and _keeps_type(left, right, types) else None
        case "cast", (_, Key() as to):
            return _written(keys.specialise(to, rank))
        case "call", (str() as name, *given) if name.startswith("torch."):
            return _of_call(name.removeprefix("torch."), [_chosen(each, keys, rank) for each in given], keys, rank)
        case "rows", (_, str() as name, *_) if name in PLACES:
            return WHOLE
        case "rows" | "item" | "element", (held, *_) if key.op != "rows" or key.args[1] not in PLACES:
            return type_of(held, keys, rank) if key.op != "rows" or key.args[1] not in OF_ANY_TYPE else None
        case _:
            return None


def _chosen(key: Key, keys: Keys, rank: Rank) -> Key:
    """Return a number, or a list of numbers, as conditions choose it on a rank; a rank may be a float by now."""
    if not key.differs_by & BY_RANK:
        return key
    match key.op, key.args:
        case "if", (test, then, other):
            held = truth(keys.specialise(test, rank), _member(rank))
            return key if held is None else _chosen(then if held else other, keys, rank)
        case "sequence", elements:
            return keys.make("sequence", *(_chosen(each, keys, rank) for each in elements))
        case _:
            return key


def _is_number(key: Key) -> bool:
    return (key.is_constant and isinstance(key.value, int | float)) or key.op in ("rank", "world")


def _keeps_type(left: Key, right: Key, types: set[str | None]) -> bool:
    """Return whether a number that is added to a tensor, or multiplied with it, leaves its type."""
    floats = any(each.op in ("rank", "world") or isinstance(each.args[0], float) for each in (left, right) if each.args)
    return not floats or not types & {WHOLE, "int32", "int16", "int8", "uint8", TRUTH, None}


def shape_of(key: Key, keys: Keys, rank: Rank) -> Shape | None:
    """Return the shape of a tensor on a rank, None for a dimension that does not follow, or for all."""
    if key.op not in WITH_SHAPE and not key.differs_by & BY_RANK and key.op not in WITH_SIZES:
        return None
    key = keys.specialise(key, rank)
    match key.op, key.args:
        case "if", (test, then, other):
            held = truth(test, _member(rank))
            first, second = (shape_of(each, keys, rank) for each in (then, other))
            return first if held or first == second else second if held is False else None
        case ("cast", (held, _)) | ("rows", (held, "relu" | "tanh" | "sigmoid" | "exp" | "sqrt" | "softmax", *_)):
            return shape_of(held, keys, rank)
        case "binary", ("Add" | "Sub" | "Mult" | "Div", left, right):
            shapes = {shape_of(each, keys, rank) for each in (left, right) if not _is_number(each)}
            return shapes.pop() if len(shapes) == 1 else None
        case "sized", (*_, Key(op="sequence", args=sizes)):
            return tuple(number(each, _member(rank)) for each in sizes)
        case "element", (held, *_):
            whole = shape_of(held, keys, rank)
            return whole[1:] if whole and len(whole) > 1 else None
        case "item", (Key(op=op, args=(*_, Key() as held, _)), _) if op in PIECES:
            return _with_length(key, shape_of(held, keys, rank), rank)
        case "item", (held, Key(op="slice")):
            return _with_length(key, shape_of(held, keys, rank), rank)
        case "call", (str() as name, *given) if name.startswith("torch."):
            return _shape_of_call(name.removeprefix("torch."), given, keys, rank)
        case _:
            return None


def _with_length(part: Key, whole: Shape | None, rank: Rank) -> Shape | None:
    """Return the shape of a part of a tensor, of which the first size is another."""
    return (length(part, _member(rank)), *whole[1:]) if whole else None


def _member(rank: Rank) -> Member:
    return Member(rank.rank, rank.world_size)


def _written(key: Key) -> str | None:
    """Return the type that an argument names."""
    if key.op != "library":
        return None
    name = str(key.args[0]).removeprefix("torch.")
    return name if name in TYPES else ALIASES.get(name)


def names_type(key: Key) -> bool:
    """Return whether a value is a type of torch on each rank, whichever a condition chooses."""
    if key.op == "if":
        return all(map(names_type, key.args[1:]))
    return _written(key) is not None


def _of_call(name: str, given: list[Key], keys: Keys, rank: Rank) -> str | None:
    types = [_written(each) for each in given]
    for each in given:
        if each.op == "attribute" and each.args[1] == "dtype":
            types = [type_of(each.args[0], keys, rank)]
            if types == [None]:
                return None
    if found := [each for each in types if each]:
        return found[-1]
    if name in OF_ARRAYS and given and is_array(given[0], keys):
        return type_of_array(given[0], keys)
    if any(each.op not in ("constant", "sequence", "call", "library", "world", "length", "binary") for each in given):
        return None if name not in SHAPED and name not in PLACES else SHAPED.get(name, WHOLE)
    if name in SHAPED:
        return SHAPED[name]
    if name.startswith(SPECTRA) and name.removeprefix("fft.") not in OF_REAL_SPECTRA:
        return "complex64"
    if name in PLACES or OF_NUMBERS.get(name):
        return WHOLE
    if name in LIKE and given:
        return type_of(given[0], keys, rank)
    if name == "full" and len(given) > 1:
        return _of_numbers(given[1])
    if name == "arange" and all(each.is_constant for each in given):
        return FLOAT if any(isinstance(each.value, float) for each in given) else WHOLE
    return _of_numbers(given[0]) if name == "tensor" and given else None


def _of_numbers(held: Key) -> str | None:
    """Return the type of a tensor of numbers that are written out."""
    if held.op == "sequence":
        kinds = {_of_numbers(each) for each in held.args if each.op not in COUNTS}
        if None in kinds or not kinds or (FLOAT not in kinds and any(each.op in COUNTS for each in held.args)):
            return None
        return FLOAT if FLOAT in kinds else WHOLE if WHOLE in kinds else TRUTH
    if held.op == "if":
        kinds = {_of_numbers(each) for each in held.args[1:]}
        return kinds.pop() if len(kinds) == 1 else None
    match held.op, held.args:
        case "binary", ("Div", *sides) if any(each.op in COUNTS or _of_numbers(each) for each in sides):
            return FLOAT
        case "binary", ("Add" | "Sub" | "Mult", *sides):
            kinds = {_of_numbers(each) for each in sides}
            return None if None in kinds else FLOAT if FLOAT in kinds else WHOLE
        case "call", ("float", *_):
            return FLOAT
        case _:
            pass
    if not held.is_constant:
        return WHOLE if held.op in COUNTS else None
    return {bool: TRUTH, int: WHOLE, float: FLOAT}.get(type(held.value))


def _shape_of_call(name: str, given: list[Key], keys: Keys, rank: Rank) -> Shape | None:
    member = _member(rank)
    if name in LIKE or name in ("clone", "relu", "nn.functional.relu"):
        return shape_of(given[0], keys, rank) if given else None
    if name in SHAPED or name == "full" or name == "randint":
        place = 0 if name != "randint" else 2 if len(given) > 2 and given[2].op == "sequence" else 1
        sizes = given[place : place + 1] if name in ("full", "randint") else given
        if sizes and sizes[0].op == "sequence":
            return tuple(number(each, member) for each in sizes[0].args)
        counts = [each for each in sizes if _may_be_size(each)]
        return tuple(number(each, member) for each in counts) if len(counts) == len(sizes) and counts else None
    if name == "arange":
        bounds = [number(each, member) for each in given if each.op != "library"]
        return (range_length(bounds),) if bounds and len(bounds) <= MOST_BOUNDS else None
    if name == "randperm" and given:
        return (number(given[0], member),)
    if name == "tensor" and given:
        return _shape_of_numbers(given[0])
    return None


def _may_be_size(key: Key) -> bool:
    return (key.is_constant and type(key.value) is int) or key.op in ("world", "rank", "binary", "length", "attribute")


def _shape_of_numbers(held: Key) -> Shape | None:
    if held.op != "sequence":
        return () if held.is_constant and isinstance(held.value, int | float) else None
    inner = {_shape_of_numbers(each) for each in held.args}
    if len(inner) != 1 or None in inner:
        return None
    (below,) = inner
    return None if below is None else (len(held.args), *below)


def shape_after(module: Key, given: Shape | None, rank: Rank) -> Shape | None:
    """Return the shape of what a module of torch makes of a tensor on a rank."""
    if given is None or module.op != "call":
        return None
    name = str(module.args[0]).removeprefix("torch.nn.")
    if name == "Sequential":
        for each in module.args[1:]:
            given = shape_after(each, given, rank)
        return given
    if name in SAME_SHAPE:
        return given
    if name == "Linear" and len(module.args) > 2 and given:
        return (*given[:-1], number(module.args[2], _member(rank)))
    return None
