"""The patch that changes a model in front of the statement that puts DDP around it."""

import ast

from ...training_script.edits import Edit
from ...training_script.model.sequences import Site
from ...training_script.nodes import node_at
from ...training_script.source import ScriptSource
from ...training_script.syntax import call_argument, dotted_name
from ..rule_context import Patch, Script, no_patch
from .apply_edits import apply_edits
from .move_statement import statement_with

FIX = "change-before-wrap"


def change_before_wrap(script: Script, change: Site, wrap: Site) -> Patch:
    """Return the patch that moves an assignment to a part of the inner model above the wrap in the same block."""
    source = script.source
    stmt = node_at(source.tree, change.line, change.column, ast.stmt)
    block = source.block_of(stmt) if stmt else []
    made = statement_with(block[: block.index(stmt)], source.path, [wrap]) if stmt in block else None
    call = node_at(source.tree, wrap.line, wrap.column, ast.Call)
    code = _of_inner_model(source, stmt, made, call) if isinstance(stmt, ast.Assign) and made and call else ""
    if stmt is None or made is None or not code:
        return no_patch(FIX, "change the model before DDP is put around it")
    at = source.starts[made.lineno - 1]
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="DDP sends the parameters of rank 0, and an optimizer made in between now has the new ones",
        edits=[Edit(at, at, code), source.remove_lines(stmt.lineno, stmt.end_lineno or stmt.lineno)],
    )


def _of_inner_model(source: ScriptSource, stmt: ast.Assign, made: ast.stmt, call: ast.Call) -> str:
    """Return the lines of an assignment with the model that DDP is given for its inner model; "" if it needs more."""
    model = call_argument(call, "module", 0)
    if not isinstance(made, ast.Assign) or made.value is not call or len(made.targets) != 1 or model is None:
        return ""
    wrapped, inner = dotted_name(made.targets[0]), dotted_name(model)
    named = [node for node in ast.walk(stmt) if isinstance(node, ast.Name | ast.Attribute)]
    whole = [node for node in named if wrapped and dotted_name(node) == f"{wrapped}.module"]
    alone = [node for node in named if dotted_name(node) == wrapped]  # one within each of these
    block = source.block_of(stmt)
    between = block[block.index(made) + 1 : block.index(stmt)]
    bound = {node.id for each in between for node in ast.walk(each) if isinstance(node, ast.Name) and _is_bound(node)}
    read = {node.id for node in named if isinstance(node, ast.Name)} - {wrapped.partition(".")[0]}
    if not (inner and whole and source.alone(stmt) and source.alone(made)) or len(alone) != len(whole) or bound & read:
        return ""
    lines = source.remove_lines(stmt.lineno, stmt.end_lineno or stmt.lineno)
    edits = [Edit(source.start(node) - lines.start, source.end(node) - lines.start, inner) for node in whole]
    return apply_edits(source.text[lines.start : lines.end].rstrip("\r\n") + source.newline, edits)


def _is_bound(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)
