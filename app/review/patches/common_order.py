"""The patches by which all ranks take one order, one group, or one choice."""

import ast

from ...training_script.model.keys import RANKS
from ...training_script.nodes import node_at
from ..rule_context import Patch, Script, no_patch
from .agree_on_condition import NO_NAMES, may_end_apart
from .torch_names import distributed_module, free_name, tensor_device

ORDER, GROUP, CHOICE = "common-order", "same-group", "choice-of-rank-0"
CHOICES = ("chosen", "choice_of_all", "chosen_together")
SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)


def common_order(script: Script, line: int, column: int) -> Patch:
    """Return the patch that leaves elements in the order that they have before ``sorted`` gives each rank its own."""
    call = node_at(script.source.tree, line, column, ast.Call)
    while call is not None and not (isinstance(call.func, ast.Name) and call.func.id == "sorted"):
        call = next((each for each in call.args if isinstance(each, ast.Call)), None)
    if call is None or len(call.args) != 1 or isinstance(call.args[0], ast.Starred):
        return no_patch(ORDER, "sort by what is the same on all ranks")
    return Patch(
        id=ORDER,
        safety="unsafe",
        why_unsafe="the order is that of the elements, the same on all ranks, whatever each rank wants first",
        edits=[script.source.replace(call, f"list({script.source.one_line(call.args[0])})")],
    )


def same_group(script: Script, choice: ast.BoolOp | ast.IfExp) -> Patch:
    """Return the patch that lets every rank take the group of its own that most ranks take."""
    sides = choice.values if isinstance(choice, ast.BoolOp) else [choice.body, choice.orelse]
    keys = script.evaluated.keys
    values = [(side, script.evaluated.value(side)) for side in sides]
    seen = [(side, [keys.specialise(key, rank) for rank in RANKS]) for side, key in values if key]
    own = [side for side, found in seen if not any(each.op in ("constant", "library") for each in found)]
    if len(own) != 1:
        return no_patch(GROUP, "pass the same group on all ranks")
    code = script.source.one_line(own[0])
    return Patch(
        id=GROUP,
        safety="unsafe",
        why_unsafe="the ranks that took the group of all ranks take their own group then",
        edits=[script.source.replace(choice, code)],
    )


def choice_of_first(script: Script, call: ast.Call) -> Patch:
    """Return the patch by which all ranks call the function that rank 0 chooses from a table."""
    source, stmt = script.source, script.source.statement_of(call)
    module, name = distributed_module(script, stmt), free_name(script, CHOICES)
    if not module or not name:
        return no_patch(CHOICE, NO_NAMES)
    if may_end_apart(script, stmt) or tensor_device(script, stmt, "torch") is None:
        return no_patch(CHOICE, "let rank 0 choose, and broadcast its choice, where all ranks come together")
    if not isinstance(call.func, ast.Subscript) or not isinstance(stmt, SIMPLE) or not source.alone(stmt):
        return no_patch(CHOICE, "the ranks part at an expression: decide before it, on all ranks")
    indent = source.indent(stmt.lineno)
    lines = [
        f"{name} = [{source.one_line(call.func.slice)}]",
        f"if {module}.is_initialized():",
        f"{source.one_level(indent)}{module}.broadcast_object_list({name}, src=0)",
    ]
    edits = [source.insert_line(stmt.lineno, line, indent) for line in lines]
    return Patch(
        id=CHOICE,
        safety="unsafe",
        why_unsafe="all ranks do what rank 0 chooses by its data, and wait for each other to learn it",
        edits=[*edits, source.replace(call.func.slice, f"{name}[0]")],
    )
