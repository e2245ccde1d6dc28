"""The patch that ends the process group behind a ``try`` statement instead of in its ``finally`` block."""

import ast

from ...training_script.edits import Edit
from ...training_script.syntax import nodes_of_body
from ..rule_context import Patch, Script, no_patch

FIX = "end-after-the-try"
BY_HAND = "call it at the normal end: behind the `try` statement, not in its `finally` block"
LEAVES = (ast.Return, ast.Break, ast.Continue)


def end_after_try(script: Script, call: ast.Call) -> Patch:
    """Return the patch for ``destroy_process_group`` in a ``finally`` block: a rank that failed does not come to it."""
    source, stmt = script.source, script.source.statement_of(call)
    guard = source.parents[stmt]
    stmt = guard if isinstance(guard, ast.If) and guard.body == [stmt] and not guard.orelse else stmt
    attempt = source.parents[stmt]
    if not isinstance(attempt, ast.Try) or attempt.finalbody != [stmt] or attempt.orelse or not source.alone(stmt):
        return no_patch(FIX, BY_HAND)
    finally_ = next(line for line in range(stmt.lineno, 0, -1) if source.line(line).lstrip().startswith("finally"))
    tried = range(attempt.body[0].lineno, (attempt.body[-1].end_lineno or 0) + 1) if not attempt.handlers else range(0)
    moved = [*tried, *range(stmt.lineno, (stmt.end_lineno or 0) + 1)]
    left = any(isinstance(node, LEAVES) for node in nodes_of_body(attempt))
    if left or finally_ == stmt.lineno or attempt.lineno in tried or source.inside_strings.intersection(moved):
        return no_patch(FIX, BY_HAND)
    width = len(source.indent(stmt.lineno)) - len(source.indent(attempt.lineno))
    edits = [Edit(start := source.starts[line - 1], start + width, "") for line in moved if source.line(line).strip()]
    edits += [source.remove_lines(line, line) for line in (finally_, *([attempt.lineno] if tried else []))]
    return Patch(
        id=FIX, safety="unsafe", why_unsafe="a rank that failed ends without destroying the group", edits=edits
    )
