"""The patch that averages gradients over the ranks behind a backward pass which DDP takes no part in."""

import ast

from ...training_script.syntax import call_argument, dotted_name
from ..rule_context import Patch, Script, no_patch
from .torch_names import distributed_module, free_name

FIX, SUM = "average-gradients", "divide-the-sum"
SMALLER = "the steps are smaller: a learning rate may have been chosen for the sum"
PARAMETERS = ("parameter", "param", "weight")
BY_HAND = "call the wrapped model here, and take from it what is needed of the inner one"


def divide_sum(script: Script, reduce: ast.Call, why: str = SMALLER) -> Patch:
    """Return the patch that divides a sum by the number of ranks behind the call that makes it."""
    source, stmt = script.source, script.source.statement_of(reduce)
    given, module = call_argument(reduce, "tensor", 0), dotted_name(reduce.func).rpartition(".")[0]
    last, tensor = stmt.end_lineno or stmt.lineno, dotted_name(given) if given is not None else ""
    if not is_alone(script, stmt, reduce) or not module or not tensor:
        return no_patch(SUM, "divide the sum by the number of ranks")
    group = call_argument(reduce, "group", 2)
    ranks = f"{module}.get_world_size({source.one_line(group) if group is not None else ''})"
    line = source.insert_line(last + 1, f"{tensor} /= {ranks}", source.indent(stmt.lineno))
    return Patch(id=SUM, safety="unsafe", why_unsafe=why, edits=[line])


def is_alone(script: Script, stmt: ast.stmt, reduce: ast.Call) -> bool:
    """Return whether a statement is nothing but a reduction that it waits for, and a line comes behind it."""
    source, last = script.source, stmt.end_lineno or stmt.lineno
    waits = call_argument(reduce, "async_op", 3) is None
    is_whole = isinstance(stmt, ast.Expr) and stmt.value is reduce and source.alone(stmt)
    return waits and is_whole and last < len(source.starts)


def average_gradients(script: Script, called: ast.expr, backward: ast.Call | None) -> Patch:
    """Return the patch for the backward pass of a loss that a part of the inner model computes.

    Gradients that DDP has averaged as well keep their values: all ranks have the same.
    """
    source = script.source
    models = [node.value for node in ast.walk(called) if isinstance(node, ast.Attribute) and node.attr == "module"]
    stmt = source.statement_of(backward) if backward in source.parents and backward else None
    module, name = distributed_module(script, called), free_name(script, PARAMETERS)
    if len(models) != 1 or not dotted_name(models[0]) or not isinstance(stmt, ast.Expr) or not source.alone(stmt):
        return no_patch(FIX, BY_HAND)
    model, last = source.code(models[0]), stmt.end_lineno or stmt.lineno
    same = script.names.enclosing_function(called) is script.names.enclosing_function(stmt)
    if not same or not module or not name or last >= len(source.starts):
        return no_patch(FIX, BY_HAND)
    indent = source.indent(stmt.lineno)
    step = source.one_level(indent)
    lines = [
        f"for {name} in {model}.parameters():",
        f"{step}if {module}.is_initialized() and {name}.grad is not None:",
        f"{step}{step}{module}.all_reduce({name}.grad)",
        f"{step}{step}{name}.grad /= {module}.get_world_size()",
    ]
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="the parameters that have gradients have to be the same on all ranks",
        edits=[source.insert_line(last + 1, line, indent) for line in lines],
    )
