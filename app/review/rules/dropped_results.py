"""DW421: calls of functions that return what a collective has received, of which nothing takes the result."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.edits import Edit
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import dotted_name, last_name, nodes_of_body
from ..rule_context import Patch, Script, Violation, no_patch
from ..types import RelatedPlace
from ..violations import violation_at_node

# Collectives by the place of what they fill.
FILLS = {"broadcast": 0, "broadcast_object_list": 0, "all_reduce": 0, "all_gather": 0, "all_gather_object": 0}


TAKE = "take-result"
MODULES = re.compile(r"distributed\.(?:nn|_functional_collectives|_?tensor)\b")
# Functions that leave what they are given as it is, and return the result.
_NEW = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all")
_NEW_OF_TENSORS = ("all_reduce", "all_gather_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast")
RETURN_NEW = {
    *(f"torch.distributed.nn.{inner}{name}" for inner in ("", "functional.") for name in _NEW),
    *(f"torch.distributed._functional_collectives.{name}" for name in _NEW_OF_TENSORS),
    *(f"torch.distributed.{module}.distribute_tensor" for module in ("tensor", "_tensor")),
}


def check_new(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the statements that only call a function which returns a new tensor."""
    if run.function is not None or not script.mentions(MODULES):
        return
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Expr(value=ast.Call(args=[given, *_]) as call) if script.names.qualified(call.func) in RETURN_NEW:
                yield violation_at_node(
                    node,
                    f"{last_name(call.func)} returns its result here, and nothing takes it: "
                    f"`{script.source.one_line(given)}` stays as it is",
                    0.9,
                    patch=partial(_taken, script, call, given),
                )
            case _:
                pass


def _taken(script: Script, call: ast.Call, given: ast.expr) -> Patch:
    """Return the patch that binds the name of the tensor to the result."""
    if not isinstance(given, ast.Name):
        return no_patch(TAKE, "bind a name to what it returns")
    at = script.source.start(call)
    return Patch(id=TAKE, safety="safe", edits=[Edit(at, at, f"{given.id} = ")])


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the statements that only call a function whose collective fills something of its own."""
    if not run.distributed or run.function is not None:
        return
    functions = {
        each.name: name
        for each in nodes_below(script.source.tree)
        if isinstance(each, ast.FunctionDef) and (name := _returned_result(each))
    }
    for node in nodes_below(script.source.tree) if functions else ():
        match node:
            case ast.Expr(value=ast.Call(args=[_, *_]) as call) if _calls(script, call, functions):
                name = last_name(call.func)
                collective = functions[name]
                yield violation_at_node(
                    node,
                    f"`{name}` returns what its collective gives to all ranks (line {collective.lineno}), and "
                    f"nothing takes it: `{script.source.one_line(call.args[0])}` stays that of this rank",
                    0.85,
                    related=[RelatedPlace(path=script.source.path, line=collective.lineno, message="the collective")],
                )
            case _:
                pass


def _calls(script: Script, call: ast.Call, functions: dict[str, ast.Call]) -> bool:
    """Return whether a call is one of a function of the file, or of a method of an object that it makes."""
    match call.func:
        case ast.Name(id=name):
            return name in functions
        case ast.Attribute(value=owner, attr=name) if name in functions:
            held = script.evaluated.value(owner)
            return held is not None and held.op == "instance"
        case _:
            return False


def _returned_result(function: ast.FunctionDef) -> ast.Call | None:
    """Return the collective that fills something new in a function, which is what the function returns."""
    parameters = {each.arg for each in (*function.args.posonlyargs, *function.args.args)}
    made = {
        target.id: stmt.value
        for stmt in function.body
        if isinstance(stmt, ast.Assign)
        for target in stmt.targets
        if isinstance(target, ast.Name)
    }
    nodes = list(nodes_of_body(function))
    stores = any(isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store) for node in nodes)
    returned = [node.value for node in nodes if isinstance(node, ast.Return) and node.value is not None]
    if stores or len(returned) != 1 or any(isinstance(node, ast.Global) for node in nodes):
        return None
    base: ast.expr = returned[0]
    while isinstance(base, ast.Subscript | ast.Attribute | ast.Call | ast.BinOp):
        base = base.left if isinstance(base, ast.BinOp) else base.func if isinstance(base, ast.Call) else base.value
    name = dotted_name(base)
    for node in nodes:
        place = FILLS.get(last_name(node.func)) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and place is not None and len(node.args) > place:
            filled = dotted_name(node.args[place])
            if filled == name and name not in parameters and _is_new(made.get(name)):
                return node
    return None


def _is_new(made: ast.expr | None) -> bool:
    """Return whether a value is made of others, rather than the tensor of an argument."""
    return isinstance(made, ast.List | ast.BinOp | ast.ListComp) or (
        isinstance(made, ast.Call) and last_name(made.func) in ("tensor", "clone", "as_tensor", "float", "double")
    )
