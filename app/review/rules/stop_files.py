"""DW481: training loops that each rank leaves when it sees a file."""

import ast
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, LOOPS, dotted_name
from ..rule_context import Script, Violation

EXISTS = {"os.path.exists", "os.path.isfile", "os.path.lexists", "exists", "is_file"}
ENDS = {"sys.exit", "exit", "quit", "os._exit"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the conditions on a file under which a rank leaves a loop with the backward pass of all ranks."""
    if not run.distributed:
        return
    trained = {
        loop.site.line
        for reach in run.reached
        if reach.name == BACKWARD and reach.several
        for loop in reach.loops
        if loop.site.path == script.source.path
    }
    for node in nodes_below(script.source.tree) if trained else ():
        match node:
            case ast.While():
                loop = node
            case ast.If() if _leaves(node):
                loop = _loop_around(script, node)
            case _:
                continue
        key = script.evaluated.value(node.test) if loop is not None and loop.lineno in trained else None
        if key is not None and _asks_for_file(key):
            yield Violation(
                line=node.lineno,
                column_bytes=node.col_offset + 1,
                end_line=node.test.end_lineno or node.lineno,
                message="each rank looks for this file by itself: one that looks earlier, or behind the rank that "
                "deletes the file, goes on with the next backward pass, and the others have left the loop",
                confidence=0.75,
            )


def _asks_for_file(test: Key) -> bool:
    """Return whether a file decides a condition, and no rank and no collective."""
    if test.differs_by & BY_RANK or any(part.op in SAME for part in parts(test)):
        return False
    return any(part.op == "call" and part.args[0] in EXISTS for part in parts(test))


def _leaves(branch: ast.If) -> bool:
    """Return whether a branch ends the loop, the function or the program."""
    match branch.body[-1]:
        case ast.Break() | ast.Return() | ast.Raise():
            return True
        case ast.Expr(value=ast.Call(func=function)):
            return dotted_name(function) in ENDS
        case _:
            return False


def _loop_around(script: Script, branch: ast.If) -> ast.For | ast.While | None:
    """Return the loop that a branch leaves, None if a condition on the rank is around it there."""
    at: ast.AST | None = script.source.parents.get(branch)
    while at is not None and not isinstance(at, FUNCTIONS):
        if isinstance(at, ast.If) and script.depends_on_rank(at.test):
            return None
        if isinstance(at, LOOPS):
            return at if isinstance(at, ast.For | ast.While) else None
        at = script.source.parents.get(at)
    return None
