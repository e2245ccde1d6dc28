"""Kinds of the values that expressions surely are: a tensor, a number, a text, a list, a group, a module …"""

import ast

from ..training_script.model.keys import Key
from ..training_script.model.tensor_kinds import MADE
from ..training_script.model.values import FunctionRef, Library, Value
from ..training_script.syntax import FUNCTIONS, last_name
from .origins import origins_at
from .rule_context import Script

UNKNOWN = ""
NUMBER, FLOAT, FLAG, TEXT, NOTHING = "a whole number", "a float", "a bool", "a text", "None"
TENSOR, ARRAY, LIST, TUPLE, SET, MAPPING = "a tensor", "an array", "a list", "a tuple", "a set", "a dict"
DISTRIBUTED = "a distributed tensor"
GROUP, OPERATION, DURATION, LAMBDA = "a process group", "a reduction", "a timedelta", "a lambda"
FUNCTION, INNER, GENERATOR, MODULE = "a function", "a function inside of another one", "a generator", "a module"
MOST_FOLLOWED = 6  # expressions in each other
OF_CONSTANTS: dict[type, str] = {int: NUMBER, float: FLOAT, bool: FLAG, str: TEXT, type(None): NOTHING}
NUMBERS = {NUMBER, FLOAT, FLAG}
# What functions return, by their last name, where no function of the program has it, and methods by theirs.
OF_FUNCTIONS = {
    **dict.fromkeys(("len", "get_rank", "get_world_size", "ord", "device_count"), NUMBER),
    **dict.fromkeys(("list", "sorted"), LIST),
    "dict": MAPPING,
    "set": SET,
    "tuple": TUPLE,
    "float": FLOAT,
    "int": NUMBER,
    "str": TEXT,
    "bool": FLAG,
    "timedelta": DURATION,
    "new_group": GROUP,
    "distribute_tensor": DISTRIBUTED,
}
OF_METHODS = {
    "item": {NUMBER, FLOAT},
    "state_dict": {MAPPING},
    "parameters": {GENERATOR},
    "named_parameters": {GENERATOR},
    "tolist": {LIST},
    "numpy": {ARRAY},
    "buffer": {TENSOR},
    "strip": {TEXT},
    "upper": {TEXT},
    "lower": {TEXT},
}
OF_LIBRARIES = {"time.time": FLOAT, "time.perf_counter": FLOAT, "os.path.join": TEXT, "os.getcwd": TEXT}
OF_LIBRARIES |= {"torch.nn.utils.parameters_to_vector": TENSOR, "torch.stack": TENSOR, "torch.cat": TENSOR}
CLASSES = {"nn.Linear", "nn.Sequential", "nn.Module", "nn.Conv2d", "nn.ModuleList", "nn.ModuleDict", "nn.Embedding"}
READS_VARIABLE = {"os.getenv", "os.environ.get"}
COPIED_BY = {"__getstate__", "__reduce__", "__reduce_ex__"}


class Kinds:
    """The kinds of the values of one script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def of(self, node: ast.expr, value: Value | None = None, depth: int = MOST_FOLLOWED) -> set[str]:
        """Return the kinds that an argument may have; UNKNOWN is among them if one is not known."""
        if value and (known := _of_facts(value)):
            return {known}
        found = self._of_expression(node, depth) if depth else {UNKNOWN}
        if value and found == {UNKNOWN}:
            found = {_of_key(value.key)}
        if value and found == {NOTHING} and value.key.op == "parameter":
            return {UNKNOWN}  # no more than its default
        if isinstance(node, ast.Attribute) and found == {NOTHING}:
            return {UNKNOWN}  # a library may set it, as backward() does with the gradient
        return found

    def _of_expression(self, node: ast.expr, depth: int) -> set[str]:
        if isinstance(node, ast.Name) and (summed := self._of_sum(node, depth)):
            return {summed}
        found = set[str]()
        for each in origins_at(self.script, node) or self.script.names.origins(node):
            found |= self._of_leaf(each, depth - 1)
        return found or {UNKNOWN}

    def _of_sum(self, name: ast.Name, depth: int) -> str:
        """Return the kind of a number to which others are added."""
        bindings = self.script.names.bindings(name)
        added = [each.at for each in bindings if isinstance(each.at, ast.AugAssign)]
        if not added or len(bindings) > MOST_FOLLOWED:
            return UNKNOWN
        found = set[str]()
        for each in bindings:
            held = each.at.value if isinstance(each.at, ast.AugAssign) else each.value
            if held is None or each.place is not None or any(part is held for part in ast.walk(name)):
                return UNKNOWN
            found |= {UNKNOWN} if _mentions(held, name.id) else self.of(held, None, depth - 1)
        if found <= NUMBERS:
            return NUMBER if found == {NUMBER} else FLOAT
        return TENSOR if TENSOR in found <= NUMBERS | {TENSOR} else UNKNOWN

    def _of_leaf(self, node: ast.AST, depth: int) -> set[str]:
        match node:
            case ast.Constant(value=value):
                return {OF_CONSTANTS.get(type(value), UNKNOWN)}
            case ast.List() | ast.ListComp():
                return {LIST}
            case ast.Tuple():
                return {TUPLE}
            case ast.Dict() | ast.DictComp():
                return {MAPPING}
            case ast.Set() | ast.SetComp():
                return {SET}
            case ast.JoinedStr():
                return {TEXT}
            case ast.Lambda():
                return {LAMBDA}
            case ast.GeneratorExp():
                return {GENERATOR}
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=held):
                return self.of(held, None, depth)
            case ast.BinOp():
                return {self._of_operation(node, depth)}
            case ast.Subscript(value=held) if self.script.names.qualified(held) == "os.environ":
                return {TEXT}
            case ast.Attribute() if "ReduceOp." in self.script.names.qualified(node):
                return {OPERATION}
            case ast.Call():
                return self._of_call(node, depth)
            case _ if isinstance(node, FUNCTIONS):
                is_inner = self.script.names.enclosing_function(node) is not None
                return {INNER if is_inner else FUNCTION}
            case _:
                return {UNKNOWN}

    def _of_operation(self, node: ast.BinOp, depth: int) -> str:
        left, right = self.of(node.left, None, depth), self.of(node.right, None, depth)
        if isinstance(node.op, ast.Mult | ast.Add) and LIST in (only(left), only(right)):
            return LIST
        if left <= NUMBERS and right <= NUMBERS:
            return FLOAT if isinstance(node.op, ast.Div) or FLOAT in left | right else NUMBER
        if TENSOR in (only(left), only(right)) and left | right <= NUMBERS | {TENSOR}:
            return TENSOR
        return TEXT if only(left) == TEXT and isinstance(node.op, ast.Mod | ast.Add) else UNKNOWN

    def _of_call(self, call: ast.Call, depth: int) -> set[str]:
        name, last = self.script.names.qualified(call.func), last_name(call)
        if name in READS_VARIABLE:
            default = call.args[1] if len(call.args) > 1 else None
            return {TEXT} | (self.of(default, None, depth) if default else {UNKNOWN})
        if name in OF_LIBRARIES:
            return {OF_LIBRARIES[name]}
        if name.startswith("torch.") and name.removeprefix("torch.") in MADE:
            return {TENSOR}
        if name.startswith("torch.") and name.removeprefix("torch.") in CLASSES:
            return {MODULE}
        if (owner := self.script.names.class_of(call)) is not None:
            return {MODULE if any(last_name(base) == "Module" for base in owner.bases) else UNKNOWN}
        if isinstance(call.func, ast.Attribute) and not name:
            return OF_METHODS.get(last, {UNKNOWN}) if not _is_of_class(self.script, last) else {UNKNOWN}
        written = isinstance(call.func, ast.Name) and not self.script.names.bindings(call.func)
        if name.endswith(last) or written:
            return {OF_FUNCTIONS.get(last, UNKNOWN)}
        return {UNKNOWN}


def only(kinds: set[str]) -> str:
    """Return the only kind, UNKNOWN for several."""
    return next(iter(kinds)) if len(kinds) == 1 else UNKNOWN


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _is_of_class(script: Script, name: str) -> bool:
    """Return whether a class of the script has a method of this name."""
    return any(
        isinstance(each, FUNCTIONS) and each.name == name
        for owner in script.names.classes.values()
        for each in owner.body
    )


def _of_facts(value: Value) -> str:
    if "group" in value.facts and value.key.op == "shared" and value.key.args[0] == "new_group":
        return GROUP
    if isinstance(value.obj, Library):
        return OPERATION if "ReduceOp." in value.obj.name else UNKNOWN
    if isinstance(value.obj, FunctionRef):
        return LAMBDA if isinstance(value.obj.node, ast.Lambda) else UNKNOWN
    return UNKNOWN


def _of_key(key: Key) -> str:
    """Return the kind of a number that is known; a text may be one that is read as a number."""
    if key.is_constant and not isinstance(key.value, str):
        return OF_CONSTANTS.get(type(key.value), UNKNOWN)
    return MAPPING if key.op == "mapping" else UNKNOWN


def _attributes(owner: ast.ClassDef) -> list[ast.expr]:
    """Return what the constructor of a class stores in its objects; nothing if the class says how they are copied."""
    if any(isinstance(each, FUNCTIONS) and each.name in COPIED_BY for each in owner.body):
        return []
    made = next((each for each in owner.body if isinstance(each, FUNCTIONS) and each.name == "__init__"), None)
    return [
        each.value
        for each in (ast.walk(made) if made else ())
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Attribute)
    ]


def is_inside(script: Script, node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> ast.AST | None:
    """Return an expression of these types that is an element of a list, a tuple or a dict, an attribute, or itself."""
    match node:
        case ast.List(elts=held) | ast.Tuple(elts=held):
            below = list(held)
        case ast.Dict(values=held):
            below = list(held)
        case ast.Call() if (owner := script.names.class_of(node)) is not None:
            below = _attributes(owner)
        case _:
            return node if isinstance(node, kinds) else None
    for each in below:
        for origin in origins_at(script, each):
            if (found := is_inside(script, origin, kinds)) is not None:
                return found
    return None
