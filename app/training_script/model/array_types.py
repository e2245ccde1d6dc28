"""Types of the elements of NumPy arrays: those of what functions return, which ``torch.from_numpy`` keeps."""

from .keys import Key, Keys
from .values import Value

DOUBLE, SINGLE, WHOLE = "float64", "float32", "int64"
GENERATOR = "a generator"  # of random numbers
NAMED = {DOUBLE: DOUBLE, SINGLE: SINGLE, "float16": "float16", "half": "float16", WHOLE: WHOLE, "int32": "int32"}
NAMED |= {"float": DOUBLE, "double": DOUBLE, "single": SINGLE, "int": WHOLE, "long": WHOLE, "uint8": "uint8"}
NAMED |= {"float_": DOUBLE, "int_": WHOLE, "bool": "bool", "bool_": "bool"}
GENERATORS = {"numpy.random.RandomState", "numpy.random.default_rng", "numpy.random.Generator"}
# What draws, as a function of numpy.random or a method of a generator.
DRAWS: dict[str, str] = dict.fromkeys(
    ("rand", "randn", "random", "random_sample", "normal", "uniform", "standard_normal"), DOUBLE
)
DRAWS |= dict.fromkeys(("exponential", "gamma", "beta", "dirichlet", "lognormal", "laplace"), DOUBLE)
DRAWS |= dict.fromkeys(("randint", "integers", "poisson", "binomial"), WHOLE)
# What makes an array of one type if it gets no other one.
MADE: dict[str, str] = dict.fromkeys(
    ("linspace", "logspace", "zeros", "ones", "empty", "eye", "identity", "loadtxt"), DOUBLE
)
MADE |= dict.fromkeys(("bincount", "argsort", "argmax", "argmin", "digitize", "searchsorted", "count_nonzero"), WHOLE)
# What gives floats of the type of the array, or float64 for whole numbers; and what keeps the type.
OF_FLOATS = {"quantile", "percentile", "mean", "median", "std", "var", "average", "sqrt", "exp", "log", "log1p", "cov"}
KEEPS = {
    "cumsum",
    "sum",
    "abs",
    "sort",
    "clip",
    "copy",
    "reshape",
    "ravel",
    "flatten",
    "transpose",
    "squeeze",
    "repeat",
}
KEEPS |= {"max", "min", "maximum", "minimum", "ascontiguousarray", "asarray", "array", "stack", "concatenate", "diff"}
PLACE_OF_TYPE = {"array": 1, "asarray": 1, "zeros": 1, "ones": 1, "empty": 1, "loadtxt": 1}
FLOATS = {DOUBLE, SINGLE, "float16"}
KINDS = {float: DOUBLE, int: WHOLE, bool: "bool"}


def note_array(keys: Keys, made: Key, of_type: str | None) -> None:
    """Keep the type of an array; of one that is made with several types none is known."""
    if of_type == GENERATOR:
        keys.generators.add(made)
    elif made.op in ("at", "local", "call"):
        known = keys.array_types.get(made, of_type)
        keys.array_types[made] = of_type if known == of_type else None


def function_type(keys: Keys, name: str, values: list[Value], named: dict[str, Value]) -> str | None:
    """Return the type of what a function of NumPy returns, None if it does not follow from its arguments."""
    if name in GENERATORS:
        return GENERATOR
    last = name.rpartition(".")[2]
    if name.startswith("numpy.random."):
        return WHOLE if last == "permutation" and values and _is_number(values[0].key) else DRAWS.get(last)
    place = PLACE_OF_TYPE.get(last, len(values))
    if given := named.get("dtype") or (values[place] if place < len(values) else None):
        return _written(given.key)
    if last in MADE:
        return MADE[last]
    held = type_of_array(values[0].key, keys) if values else None
    if last in OF_FLOATS:
        return held if held in FLOATS else DOUBLE if held else None
    return held if last in KEEPS else None


def method_type(keys: Keys, owner: Key, name: str, values: list[Value], named: dict[str, Value]) -> str | None:
    """Return the type of what a method of an array, or of a generator, returns."""
    if owner in keys.generators:
        return WHOLE if name == "permutation" and values and _is_number(values[0].key) else DRAWS.get(name)
    held = keys.array_types.get(owner)
    if name == "astype":
        given = named.get("dtype") or (values[0] if values else None)
        return _written(given.key) if given else None
    if name in OF_FLOATS:
        return held if held in FLOATS else DOUBLE if held else None
    return held if name in KEEPS and "dtype" not in named else MADE.get(name)


def type_of_array(key: Key, keys: Keys) -> str | None:
    """Return the type of the elements of an array, or of the numbers of a list, None if it is not known."""
    if key in keys.array_types:
        return keys.array_types[key]
    match key.op, key.args:
        case "constant", (value,):
            return KINDS.get(type(value))
        case "sequence", elements:
            types = {type_of_array(each, keys) for each in elements}
            return types.pop() if len(types) == 1 else DOUBLE if types == {DOUBLE, WHOLE} else None
        case "binary", (name, left, right):
            return _of_two(name, left, right, keys)
        case "item" | "element", (held, *_):
            return type_of_array(held, keys)
        case "length" | "rank" | "world" | "number", _:
            return WHOLE
        case _:
            return None


def is_array(key: Key, keys: Keys) -> bool:
    """Return whether an array of a known type is in a value."""
    if keys.array_types.get(key):
        return True
    inner = key.args if key.op in ("binary", "item", "element") else ()
    return any(isinstance(each, Key) and is_array(each, keys) for each in inner)


def _of_two(name: str, left: Key, right: Key, keys: Keys) -> str | None:
    """Return the type of what an operation makes of two arrays, or of an array and a number."""
    sides = {type_of_array(left, keys), type_of_array(right, keys)}
    if None in sides:
        return None
    arrays = {type_of_array(each, keys) for each in (left, right) if is_array(each, keys)}
    if name == "Div" and not sides & FLOATS:
        return DOUBLE
    if len(sides) == 1:
        return sides.pop()
    of_arrays = arrays.pop() if len(arrays) == 1 else None
    if of_arrays in FLOATS:
        return of_arrays  # a number does not change it
    return DOUBLE if of_arrays and DOUBLE in sides else None


def _is_number(key: Key) -> bool:
    return (key.is_constant and type(key.value) is int) or key.op == "length"


def _written(key: Key) -> str | None:
    """Return the type that an argument names."""
    name = key.args[0] if key.op in ("library", "constant", "name") else None
    return NAMED.get(name.removeprefix("numpy.").removeprefix("builtins.")) if isinstance(name, str) else None
