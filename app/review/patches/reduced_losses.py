"""The patches for losses and gradients that are divided by the number of ranks although DDP has averaged them."""

import ast

from ...training_script.edits import Edit
from ..origins import origins_at
from ..rule_context import Patch, Script, no_patch
from .torch_names import distributed_module

ONCE, SCALED = "divide-once", "scale-to-ranks"
LARGER = (
    "the gradients are as many times larger as there are ranks: a learning rate that was tuned for these is too high"
)


def without_division(script: Script, backward: ast.Call) -> Patch:
    """Return the patch that takes the division by the number of ranks off a loss."""
    divisions = [each for each in _divisions(script, backward) if script.is_world_size(each.right)]
    if len(divisions) != 1:
        return no_patch(ONCE, "compute the gradients from the loss that is not divided")
    edit = script.source.replace(divisions[0], script.source.code(divisions[0].left))
    return Patch(id=ONCE, safety="unsafe", why_unsafe=LARGER, edits=[edit])


def times_ranks(script: Script, backward: ast.Call) -> Patch:
    """Return the patch that multiplies a loss that is divided by a sum over all ranks with their number."""
    divisions, module = _divisions(script, backward), distributed_module(script, backward)
    if len(divisions) != 1 or not module:
        return no_patch(SCALED, "multiply the loss by the number of ranks")
    end = script.source.end(divisions[0])
    code = f" * ({module}.get_world_size() if {module}.is_initialized() else 1)"
    return Patch(id=SCALED, safety="unsafe", why_unsafe=LARGER, edits=[Edit(end, end, code)])


def without_statement(script: Script, node: ast.AST) -> Patch:
    """Return the patch that removes a division of gradients which is a statement of its own."""
    source, stmt = script.source, script.source.statement_of(node)
    whole = stmt is node or (isinstance(stmt, ast.Expr) and stmt.value is node)
    while len(source.block_of(stmt)) == 1 and isinstance(parent := source.parents[stmt], ast.For | ast.If):
        if parent.orelse:
            break
        stmt = parent
    if not whole or len(source.block_of(stmt)) == 1 or not source.alone(stmt):
        return no_patch(ONCE, "take this division away")
    edit = source.remove_lines(stmt.lineno, stmt.end_lineno or stmt.lineno)
    return Patch(id=ONCE, safety="unsafe", why_unsafe=LARGER, edits=[edit])


def _divisions(script: Script, backward: ast.Call) -> list[ast.BinOp]:
    """Return the divisions that a loss may be the result of; none if it may be something else."""
    loss = backward.func.value if isinstance(backward.func, ast.Attribute) else None
    found = origins_at(script, loss) if loss else []
    divisions = [each for each in found if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div)]
    return divisions if len(divisions) == len(found) else []
