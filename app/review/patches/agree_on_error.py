"""The patch by which all ranks skip a step together when one of them cannot make it."""

import ast
import builtins
from collections.abc import Sequence

from ...training_script.edits import Edit
from ...training_script.model.sequences import Site
from ...training_script.syntax import nodes_of_body
from ..rule_context import Patch, Script, no_patch
from .agree_on_condition import agreement, reduction_at
from .move_statement import statement_with
from .torch_names import free_name

FIX = "agree-on-error"
CAUGHT = ("error", "problem", "own_error")
ERRORS, FLAGS = ("failure", "failed", "error_here"), ("any_failed", "some_rank_failed", "skip_together")
BY_HAND = "let the error end the job, or reduce a flag over all ranks before the first collective of the step"


def agree_on_error(script: Script, attempt: ast.Try, way: Sequence[Site]) -> Patch:
    """Return the patch that reduces whether a rank has failed in front of the first collective, and lets all raise.

    ``way``: the calls from the ``try`` statement to that collective, the last of which is the collective itself.
    """
    error = _error(attempt)
    block = _block(script, attempt, way)
    first = statement_with(block, script.source.path, way[-1:]) if block else None
    before = block[: block.index(first)] if first else []
    if not error or first is None or not before or not _may_move(script, before) or not script.source.alone(first):
        return no_patch(FIX, BY_HAND)
    failure, caught, flag = free_name(script, ERRORS), free_name(script, CAUGHT), reduction_at(script, first, FLAGS)
    if isinstance(flag, str) or not failure or not caught:
        return no_patch(FIX, flag if isinstance(flag, str) else BY_HAND)
    source, indent = script.source, script.source.indent(first.lineno)
    step = source.one_level(indent)
    header = "".join(f"{indent}{line}{source.newline}" for line in (f"{failure} = None", "try:"))
    opened, *moved = [edit for stmt in before for edit in source.indented(stmt)]
    handler = (f"except {error} as {caught}:", f"{step}{failure} = {caught}")
    raised = (f"if {flag.name}.item():", f'{step}raise {failure} or {error}("another rank has failed here")')
    edits = [
        Edit(opened.start, opened.end, header + opened.text),
        *moved,
        *(source.insert_line(first.lineno, line, indent) for line in handler),
        *agreement(source, first.lineno, indent, f"float({failure} is not None)", "MAX", flag),
        *(source.insert_line(first.lineno, line, indent) for line in raised),
    ]
    why = "all ranks skip what one of them cannot do, and wait for each other before the step"
    return Patch(id=FIX, safety="unsafe", why_unsafe=why, edits=edits)


def _error(attempt: ast.Try) -> str:
    """Return the class of the errors that the only handler of a statement takes, if a text makes one."""
    if len(attempt.handlers) != 1 or not isinstance(kind := attempt.handlers[0].type, ast.Name):
        return ""
    made = getattr(builtins, kind.id, None)
    plain = isinstance(made, type) and issubclass(made, Exception) and not issubclass(made, UnicodeError)
    return kind.id if plain else ""


def _block(script: Script, attempt: ast.Try, way: Sequence[Site]) -> Sequence[ast.stmt]:
    """Return the statements of which one makes the first collective: of the ``try``, or of a function that it calls."""
    line = way[-1].line
    if attempt.body[0].lineno <= line <= (attempt.body[-1].end_lineno or line):
        return attempt.body
    functions = [node for node in script.source.parents if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if node.lineno < line <= (node.end_lineno or line)]
    inner = max(around, key=lambda node: node.lineno, default=None)
    return inner.body if inner and len(way) == 2 else []


def _may_move(script: Script, stmts: Sequence[ast.stmt]) -> bool:
    """Return whether statements may be put into a block: each is alone in its lines, and none leaves it."""
    left = (ast.Return, ast.Yield, ast.YieldFrom, ast.Continue, ast.Break, ast.Global, ast.Nonlocal)
    inside = [node for stmt in stmts for node in (stmt, *nodes_of_body(stmt))]
    return all(map(script.source.alone, stmts)) and not any(isinstance(node, left) for node in inside)
