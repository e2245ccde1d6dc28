"""``limit-wait``: the statement at which a rank waits for something outside the job, with a limit and a way on."""

import ast
import copy

from ...training_script.syntax import last_name
from ..facts import CaseFacts
from ..user_code import UserFile
from .limited_request import LIMIT_S, limited_request
from .types import RecipeResult

TAKES_TIMEOUT = frozenset(
    {
        *("urlopen", "create_connection", "request", "get", "post", "put", "patch", "delete", "head"),
        *("run", "call", "check_call", "check_output", "communicate", "wait", "join", "acquire", "result"),
    }
)
TAKES_SETTIMEOUT = frozenset({"recv", "recv_into", "accept", "connect", "sendall", "makefile"})  # methods of a socket


def limit_wait(facts: CaseFacts) -> RecipeResult:
    """Return the statement with a time-out, and what to do when it has run out."""
    report = facts.context.report
    where = facts.place(report.verdict.where or "", "waits here") if report else None
    file = facts.file_as_started(where.path) if where else None
    statement = _statement_at(file, where.line) if file and where else None
    if where is None or file is None or statement is None:
        return RecipeResult(places=[where] if where else [])
    if patch := limited_request(file, where.line):
        return RecipeResult(patches=[patch], places=[where])
    limited = _limited(statement)
    if not limited:
        return RecipeResult(places=[where])
    inside = [f"    {line}" for line in limited]
    way_on = [
        "except OSError as error:",
        '    print("went on without it:", error)    # or a value that is good enough',
    ]
    text = (
        f"Line {where.line} of {where.shown.rpartition(':')[0]} waits without a limit. Give it one, and decide what "
        "happens when it has run out:"
    )
    return RecipeResult(text=text, code="\n".join(["try:", *inside, *way_on]), places=[where])


def _statement_at(file: UserFile, line: int) -> ast.stmt | None:
    """Return the innermost statement whose own code, without a block, contains the line."""
    found: ast.stmt | None = None
    for node in ast.walk(file.source.tree):
        if isinstance(node, ast.Expr | ast.Assign | ast.Return | ast.With | ast.AugAssign):
            last = node.body[0].lineno - 1 if isinstance(node, ast.With) else node.end_lineno or node.lineno
            if node.lineno <= line <= max(last, node.lineno):
                found = node
    return found


def _limited(statement: ast.stmt) -> list[str]:
    """Return the lines of a statement with a time-out in its first call that takes one; empty if none does."""
    changed = copy.deepcopy(statement)
    if isinstance(changed, ast.With):
        changed.body = [ast.Expr(ast.Constant(...))]
    for call in (node for node in ast.walk(changed) if isinstance(node, ast.Call)):
        name = last_name(call.func)
        if name in TAKES_TIMEOUT and not any(keyword.arg == "timeout" for keyword in call.keywords):
            call.keywords.append(ast.keyword("timeout", ast.Constant(LIMIT_S)))
            return ast.unparse(ast.fix_missing_locations(changed)).splitlines()
        if name in TAKES_SETTIMEOUT and isinstance(call.func, ast.Attribute):
            own = f"{ast.unparse(call.func.value)}.settimeout({LIMIT_S})"
            return [own, *ast.unparse(ast.fix_missing_locations(changed)).splitlines()]
    return []
