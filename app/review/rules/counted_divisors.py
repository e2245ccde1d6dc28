"""Quotients by a number that the data of each rank decide, computed at once or summed up in a loop."""

import ast
from collections.abc import Iterator

from ...training_script.model.amounts import is_of_data
from ...training_script.model.keys import Key, is_place, parts
from ...training_script.nodes import node_at
from ...training_script.syntax import last_name
from ..rule_context import Script

TENSORS = ("torch.tensor", "torch.as_tensor")
SUMS = ("sum", "count_nonzero")
AS_NUMBER = ("item", "float", "double", "int", "long", "detach", "clamp", "clamp_min")


def is_divided_by_count(script: Script, value: Key) -> bool:
    """Return whether a sum is divided by another one, of data that each rank has of its own, as in an F1 score."""
    if value.op != "binary":
        return False
    if any(is_divided_by_count(script, each) for each in value.args[1:]):
        return True
    if value.args[0] != "Div":
        return False
    over, by = (_without_bounds(each) for each in value.args[1:])
    if added := list(_added_in_rounds(by)):
        return any(_added_in_rounds(over)) and all(_is_sum(script, each) and is_of_data(each) for each in added)
    return _is_sum(script, over) and _is_sum(script, by) and is_of_data(by)


def held_number(tensor: Key) -> Key:
    """Return the number of which a tensor is made."""
    if tensor.op != "call" or tensor.args[0] not in TENSORS or len(tensor.args) == 1:
        return tensor
    given = tensor.args[1]
    return given.args[0] if given.op == "sequence" and len(given.args) == 1 else given


def _added_in_rounds(value: Key) -> Iterator[Key]:
    """Yield what each round of a loop adds to a number, or to an element of a tensor."""
    place = None
    if value.op == "item" and is_place(value.args[1]):
        value, place = value.args[:2]
    if value.accumulated is None:
        return
    for part in parts(value.accumulated.after):
        match part.op, part.args:
            case "binary", ("Add", Key(op="item", args=(_, at)), more) if at is place:
                yield more
            case "binary", ("Add", before, more) if place is None and before is value.accumulated.over:
                yield more
            case _:
                pass


def _without_bounds(value: Key) -> Key:
    while value.op == "max" or value.args[:1] == ("torch.clamp",):
        value = next((arg for arg in value.args if isinstance(arg, Key) and not arg.is_constant), value.args[-1])
    return value


def _is_sum(script: Script, value: Key) -> bool:
    """Return whether a value is what ``sum`` gives for a tensor, or is made of such by numbers and additions."""
    match value.op, value.args:
        case "binary", ("Mult", left, right) if left.is_constant or right.is_constant:
            return _is_sum(script, right if left.is_constant else left)
        case "binary", ("Add", left, right):
            added = [each for each in (left, right) if not each.is_constant]
            return bool(added) and all(_is_sum(script, each) for each in added)
        case _:
            pass
    if value.op == "call" and str(value.args[0]).startswith("torch.nn."):
        return any(isinstance(each, Key) and each.is_constant and each.value == "sum" for each in value.args)
    if value.op == "call":
        return str(value.args[0]).removeprefix("torch.") in SUMS and len(value.args) == 2
    if value.op != "at" or value.args[0] != script.source.path:
        return False
    made = node_at(script.source.tree, *value.args[1:], ast.Call)
    while isinstance(made, ast.Call) and last_name(made.func) in AS_NUMBER and isinstance(made.func, ast.Attribute):
        made = made.func.value
    return isinstance(made, ast.Call) and last_name(made.func) in SUMS and not made.args
