"""The patch that sums up over the ranks both numbers of a quotient, and divides once."""

import ast
from collections.abc import Sequence

from ...training_script.edits import Edit
from ...training_script.reaching_values import values_at
from ...training_script.syntax import call_argument, dotted_name
from ..rule_context import Patch, Script, no_patch

FIX = "reduce-sum-and-number"
BY_HAND = "reduce the sum and the number of samples, then divide"
TENSORS = ("torch.tensor", "torch.as_tensor")
WHY_UNSAFE = "the number is another one than in earlier runs"


def sum_and_number(script: Script, reduction: ast.Call) -> Patch:
    """Return the patch of a quotient that is made into a tensor, reduced, and divided by the number of ranks."""
    source, reduced = script.source, call_argument(reduction, "tensor", 0)
    sum_ = source.statement_of(reduction)
    made = [*values_at(script.names, reduced, sum_)] if isinstance(reduced, ast.Name) else []
    tensor = made[0] if len(made) == 1 else None
    if not isinstance(reduced, ast.Name) or not isinstance(tensor, ast.Call) or not tensor.args:
        return no_patch(FIX, BY_HAND)
    match tensor.args[0]:
        case ast.List(elts=[quotient]):
            listed = True
        case quotient:
            listed = False
    stmt = source.statement_of(tensor)
    divisions = _divisions_by_ranks(script, reduced, sum_)
    divided = [node for node, _ in divisions]
    outer = _in_block_of(script, sum_, stmt)
    last = (outer.end_lineno or outer.lineno) if outer else len(source.starts)
    if (
        script.names.qualified(tensor.func) not in TENSORS
        or not (isinstance(quotient, ast.BinOp) and isinstance(quotient.op, ast.Div))
        or not (isinstance(stmt, ast.Assign) and stmt.value is tensor)
        or not (isinstance(sum_, ast.Expr) and sum_.value is reduction and source.alone(sum_))
        or not (outer and _reads(outer, reduced.id) <= _read_in(sum_, divided) and source.alone(outer))
        or call_argument(reduction, "async_op", 3) is not None
        or last >= len(source.starts)
    ):
        return no_patch(FIX, BY_HAND)
    op = call_argument(reduction, "op", 1)
    averages = op is not None and dotted_name(op).endswith("AVG")
    if (op is not None and not averages and not dotted_name(op).endswith("SUM")) or len(divisions) != (not averages):
        return no_patch(FIX, BY_HAND)
    name, pair = reduced.id, f"{source.one_line(quotient.left)}, {source.one_line(quotient.right)}"
    each = ("[:1]", "[1:]") if listed else ("[0]", "[1]")
    line = f"{name} = {name}{each[0]} / {name}{each[1]}"
    edits = [
        source.replace(quotient, pair if listed else f"[{pair}]"),
        source.insert_line(last + 1, line, source.indent(stmt.lineno)),
        *(edit for _, edit in divisions),
    ]
    return Patch(id=FIX, safety="unsafe", why_unsafe=WHY_UNSAFE, edits=edits)


def _divisions_by_ranks(script: Script, reduced: ast.Name, sum_: ast.stmt) -> list[tuple[ast.AST, Edit]]:
    """Return each division of a reduced tensor by the number of ranks, with the edit that takes it away."""
    source, around = script.source, script.names.enclosing_function(sum_) or script.source.tree
    found: list[tuple[ast.AST, Edit]] = []
    for node in ast.walk(around):
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=number) if script.is_world_size(number):
                if _is_number_of(left, reduced.id) and node.lineno > sum_.lineno:
                    found.append((node, _in_place_of(script, node, source.code(left))))
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Div(), value=number) if name == reduced.id:
                block = source.block_of(node)
                if script.is_world_size(number) and source.alone(node) and len(block) > 1:
                    found.append((node, source.remove_lines(node.lineno, node.end_lineno or node.lineno)))
            case _:
                pass
    return found


def _in_block_of(script: Script, inner: ast.stmt, stmt: ast.stmt) -> ast.stmt | None:
    """Return the statement that is, or contains under conditions only, an inner one, next behind another statement."""
    block, at = script.source.block_of(stmt), inner
    while at not in block:
        parent = script.source.parents.get(at)
        if not isinstance(parent, ast.If):
            return None
        at = parent
    return at if block.index(at) == block.index(stmt) + 1 else None


def _reads(node: ast.AST, name: str) -> set[ast.AST]:
    return {each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id == name}


def _read_in(sum_: ast.stmt, divided: Sequence[ast.AST]) -> set[ast.AST]:
    """Return the nodes of a reduction and of divisions."""
    return {node for each in (sum_, *divided) for node in ast.walk(each)}


def _in_place_of(script: Script, node: ast.BinOp, code: str) -> Edit:
    """Return the edit that puts a name or a call in place of a division, and of the parentheses of an attribute."""
    source, start, end = script.source, script.source.start(node), script.source.end(node)
    around = isinstance(source.parents.get(node), ast.Attribute)
    if around and source.text[start - 1 : start] == "(" and source.text[end : end + 1] == ")":
        start, end = start - 1, end + 1
    return Edit(start, end, code)


def _is_number_of(node: ast.expr, name: str) -> bool:
    """Return whether an expression is a tensor, or the number in it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item":
        node = node.func.value
    return isinstance(node, ast.Name) and node.id == name
