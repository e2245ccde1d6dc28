"""The patch that averages gradients over the ranks behind a backward pass which DDP takes no part in."""

import ast

from ...training_script.syntax import dotted_name
from ..rule_context import Patch, Script, no_patch
from .torch_names import distributed_module, free_name

FIX = "average-gradients"
PARAMETERS = ("parameter", "param", "weight")
BY_HAND = "call the wrapped model here, and take from it what is needed of the inner one"


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
