"""The text of a script in which calls within an expression are assigned to variables in front of it."""

import ast
from collections.abc import Sequence

from ...training_script.edits import Edit
from ...training_script.source import ScriptSource
from ...training_script.syntax import COMPREHENSIONS
from ..rule_context import Patch, Script, no_patch
from ..side_effects import is_side_effect, writes_output
from .apply_edits import apply_edits
from .torch_names import free_name

FIX = "call-on-every-rank"
RESULTS = ("result", "outcome", "computed", "from_all_ranks")
# Expressions that may leave out a part, or run it several times.
CONDITIONAL = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, *COMPREHENSIONS)


def with_extracted_calls(script: Script, calls: Sequence[ast.Call]) -> str:
    """Return the script with the one call that is within an expression assigned in front of it; "" if not possible."""
    source = script.source
    inner = [call for call in calls if getattr(source.statement_of(call), "value", None) is not call]
    name = free_name(script, RESULTS)
    if len(inner) != 1 or not name:
        return ""
    stmt = source.statement_of(inner[0])
    place = _place(source, stmt, inner[0])
    if not isinstance(stmt, ast.Expr | ast.Assign | ast.AugAssign) or not source.alone(stmt) or place is None:
        return ""
    if any(isinstance(above, CONDITIONAL) for above in _around(source, inner[0], stmt)):
        return ""
    assigned = source.insert_line(
        stmt.lineno, f"{name} = {source.text[place.start : place.end]}", source.indent(stmt.lineno)
    )
    return apply_edits(source.text, [assigned, Edit(place.start, place.end, name)])


def call_on_every_rank(script: Script, call: ast.Call) -> Patch:
    """Return the patch that evaluates on every rank what ``if`` or ``and`` within an expression leaves to some."""
    source, stmt = script.source, script.source.statement_of(call)
    name = free_name(script, RESULTS)
    why = "the condition is part of an expression or of another branch: move the call out by hand"
    around = [call, *_around(source, call, stmt)]
    deciding = next((n for n, each in enumerate(around) if _is_decided(script, each, around[n - 1])), None)
    if deciding is None or not name or not source.alone(stmt):
        return no_patch(FIX, why)
    choice, chosen = around[deciding], around[deciding - 1]
    above = around[deciding + 1 :]
    function = script.names.function(call)
    nodes = [*ast.walk(chosen), *(ast.walk(function) if function else ())]
    effects = [node for node in nodes if isinstance(node, ast.Call) and (is_side_effect(node) or writes_output(node))]
    if effects or any(isinstance(each, CONDITIONAL) for each in above) or not isinstance(chosen, ast.expr):
        return no_patch(FIX, why)
    reason = "every rank evaluates it then, with what the call needs"
    if isinstance(choice, ast.BoolOp) and _is_unused(stmt, choice):
        edits = [source.replace(choice, source.code(chosen))]
    elif isinstance(choice, ast.IfExp):
        line = source.insert_line(stmt.lineno, f"{name} = {source.one_line(chosen)}", source.indent(stmt.lineno))
        edits = [line, source.replace(chosen, name)]
    else:
        return no_patch(FIX, why)
    return Patch(id=FIX, safety="unsafe", why_unsafe=reason, edits=edits)


def _is_decided(script: Script, choice: ast.AST, chosen: ast.AST) -> bool:
    """Return whether the rank alone decides whether a part of an expression is evaluated."""
    match choice:
        case ast.IfExp(test=test, body=body):
            return chosen is body and script.depends_on_rank(test)
        case ast.BoolOp(op=ast.And(), values=[test, last]):
            return chosen is last and script.is_known_by_rank(test)
    return False


def _is_unused(stmt: ast.stmt, value: ast.expr) -> bool:
    """Return whether nothing reads the value of a statement."""
    match stmt:
        case ast.Expr():
            return stmt.value is value
        case ast.Assign(targets=[ast.Name(id="_")]):
            return stmt.value is value
    return False


def _around(source: ScriptSource, node: ast.AST, stmt: ast.stmt) -> list[ast.AST]:
    """Return the expressions around a node, innermost first."""
    found: list[ast.AST] = []
    while (node := source.parents[node]) is not stmt:
        found.append(node)
    return found


def _place(source: ScriptSource, stmt: ast.stmt, call: ast.Call) -> Edit | None:
    """Return where the code of a call is, also within an f-string, whose places Python 3.11 does not know."""
    code, start = ast.unparse(call), source.start(stmt)
    text = source.code(stmt)
    if text.count(code) != 1:
        return None
    at = start + text.index(code)
    return Edit(at, at + len(code), code)
