"""DW427: tensors whose size the data of one rank decide: counts without a number of classes, texts, padding."""

import ast
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import BY_RANK, DIFFERS, LOCAL, Key, parts
from ...training_script.model.reach import Run
from ...training_script.syntax import last_name
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .unequal_parts import PREFIX, SENT, sent

# Functions whose result is as large as the largest value or the longest element, with the argument that gives a size.
BY_VALUES = {"bincount": "minlength", "one_hot": "num_classes", "pad_sequence": "", "pack_sequence": ""}
COUNTS = {"bincount", "one_hot"}
SIZED = {"zeros", "ones", "empty", "full"}
LARGEST = {"max", "amax"}
ENCODES = {"encode", "dumps"}  # texts and objects as so many bytes
FILLS_UP = {"ljust", "rjust", "center", "zfill", "pad", "format"}  # to a length of its own
KEEPS = {
    "float",
    "long",
    "int",
    "to",
    "sum",
    "mean",
    "clone",
    "contiguous",
    "cuda",
    "cpu",
    "flatten",
    "double",
    "list",
    "view",
    "reshape",
}
TENSORS = {"tensor", "as_tensor", "ByteTensor", "frombuffer", "bytearray", "list", "from_numpy"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives with tensors of which the size follows from the values that a rank has."""
    for reach, fact, tensor in sent(run, *SENT):
        place, word, _ = SENT[fact.name.removeprefix(PREFIX)]
        given = [*fact.node.args[place : place + 1], *(each.value for each in fact.node.keywords if each.arg == word)]
        made = next((each for node in given for each in _made(script, node)), None) if script.is_here(reach) else None
        if made is not None:
            yield from violation_at(
                script,
                reach,
                f"the tensors that {fact.name.removeprefix(PREFIX)} gets from the ranks differ in size: "
                f"`{script.source.one_line(made)}` is as large as the values of each rank make it",
                0.8,
                related=[RelatedPlace(path=script.source.path, line=made.lineno, message="sized here")],
            )

        elif _is_as_large_as_values(tensor.key):
            yield from violation_at(
                script,
                reach,
                f"the tensors that {fact.name.removeprefix(PREFIX)} gets from the ranks differ in size: they count "
                "values without a number of classes, and are as large as the largest value of each rank",
                0.8,
            )


def _is_as_large_as_values(tensor: Key) -> bool:
    """Return whether a tensor has an element for each number up to the largest one that this rank has."""
    pending = [tensor]
    for key in pending:  # which grows meanwhile
        name = str(key.args[0]).rpartition(".")[2] if key.op == "call" else ""
        given = [arg for arg in key.args if isinstance(arg, Key)]
        if name in COUNTS:
            if (
                len(given) == 1
                and given[0].differs_by & DIFFERS
                and not any(part.op in SAME for part in parts(given[0]))
            ):
                return True
        elif key.op in ("one of", "binary") or name in KEEPS:
            pending += given
        elif key.op == "if":
            pending += given[1:]
    return False


def _made(script: Script, node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls whose results are as large as values of this rank make them, conversions left out."""
    pending: list[ast.AST] = [node, *origins_at(script, node)]
    seen: set[ast.AST] = set()
    while pending:
        each = pending.pop()
        if each in seen or not isinstance(each, ast.Call):
            continue
        seen.add(each)
        name = last_name(each.func)
        inner = each.func.value if isinstance(each.func, ast.Attribute) else None
        if name in BY_VALUES or name in ENCODES:
            if _is_sized_by_values(script, each, name):
                yield each
        elif name in KEEPS and inner is not None and (name not in ("sum", "mean") or _is_over_first(each)):
            pending += [inner, *origins_at(script, inner)]
        if name in SIZED and any(_is_largest_of_own(script, size) for size in _shape(each, name)):
            yield each
        if name in TENSORS and each.args:
            pending += [each.args[0], *origins_at(script, each.args[0])]


def _is_largest_of_own(script: Script, size: ast.expr) -> bool:
    """Return whether the largest value that this rank has decides a number."""
    pending: list[ast.AST] = [size]
    seen: set[ast.AST] = set()
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        match each:
            case ast.Name() if _is_of_own_data(script, each):
                pending += origins_at(script, each)
            case ast.BinOp(left=left, right=right):
                pending += [left, right]
            case ast.Call(func=ast.Attribute(value=held, attr="item")) | ast.Call(func=ast.Name("int"), args=[held]):
                pending.append(held)
            case ast.Call(func=func, args=args) if last_name(func) in LARGEST:
                owner = [func.value] if isinstance(func, ast.Attribute) else []
                if all(_is_of_own_data(script, value) for value in (args or owner)[:1]):
                    return True
            case _:
                pass
    return False


def _is_of_own_data(script: Script, data: ast.expr) -> bool:
    """Return whether a value differs between ranks, and they have not exchanged it."""
    key = script.evaluated.value(data)
    return (
        key is not None and bool(key.differs_by & (BY_RANK | LOCAL)) and not any(part.op in SAME for part in parts(key))
    )


def _shape(call: ast.Call, name: str) -> list[ast.expr]:
    """Return the numbers that are the shape of a new tensor."""
    given = call.args[:1] if name == "full" else call.args
    return [part for each in given for part in (each.elts if isinstance(each, ast.Tuple | ast.List) else [each])]


def _is_over_first(call: ast.Call) -> bool:
    """Return whether a call reduces the first dimension alone."""
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def _is_sized_by_values(script: Script, call: ast.Call, name: str) -> bool:
    """Return whether data of this rank go into a call, and nothing else gives the result a size."""
    inner = call.func.value if isinstance(call.func, ast.Attribute) and name not in BY_VALUES else None
    data = call.args[0] if call.args and name != "encode" else inner
    sizes = [each.value for each in call.keywords if name in BY_VALUES and each.arg == BY_VALUES[name]]
    sizes += call.args[1:] if name == "one_hot" else call.args[2:] if name == "bincount" else []
    if data is None or (sizes and not any(_is_largest_of_own(script, each) for each in sizes)):
        return False
    if name == "bincount" and len(call.args) == 2 and not sizes:
        return False
    filled = [each for each in (data, *origins_at(script, data)) if isinstance(each, ast.Call)]
    if any(last_name(each.func) in FILLS_UP for each in filled):
        return False
    return _is_of_own_data(script, data)
