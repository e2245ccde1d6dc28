"""The patch of a request over the network that has no time limit."""

import ast

from ...training_script.edits import Edit
from ...training_script.nodes import unused_name
from ...training_script.syntax import contains_line, dotted_name, nodes_of_body
from ..types import FilePatch
from ..user_code import UserFile

LIMIT_S = 10
ATTEMPTS = 3
# Functions that take ``timeout``, and raise an OSError when it has run out.
REQUESTS = (
    "urllib.request.urlopen",
    "socket.create_connection",
    *(f"requests.{name}" for name in ("get", "post", "put", "patch", "delete", "head", "options", "request")),
)
NAMES = ("attempt", "number_of_attempt")
ERRORS = ("error", "failure")


def limited_request(file: UserFile, line: int) -> FilePatch | None:
    """Return the patch that limits the request at a line.

    The limit is that of the other requests of the file. A statement of which nothing is needed later is left out when
    its time has run out; one that gives a value is tried again, and raises at last.
    """
    source = file.source
    calls = [call for call in file.calls(REQUESTS) if contains_line(call, line)]
    if len(calls) != 1 or any(each.arg in ("timeout", None) for each in calls[0].keywords):
        return None
    call, statement = calls[0], source.statement_of(calls[0])
    timeout = source.add_argument(call, f"timeout={_limit_of_others(file)}")
    is_imported = dotted_name(call.func).partition(".")[0] in file.imports
    if (
        timeout is None
        or not is_imported
        or file.qualified(call.func) not in REQUESTS
        or not _is_apart(file, statement)
    ):
        return None
    error, attempt = unused_name(source.tree, ERRORS), unused_name(source.tree, NAMES)
    if not error or not attempt:
        return None
    indent, last = source.indent(statement.lineno), statement.end_lineno or statement.lineno
    step = source.one_level(indent)
    gives = _gives_a_value(statement)
    if gives:
        header = f"for {attempt} in range({ATTEMPTS}):{source.newline}{indent}{step}try:"
        tail = [] if _returns(statement) else [f"{step}{step}break"]
        tail += [f"{step}except OSError:", f"{step}{step}if {attempt} == {ATTEMPTS - 1}:", f"{step}{step}{step}raise"]
        inner = [Edit(each.start, each.end, 2 * each.text) for each in source.indented(statement)]
    else:
        header = "try:"
        tail = [f"except OSError as {error}:", f'{step}print("went on without it:", {error})']
        inner = source.indented(statement)
    first, *rest = inner
    start = source.insert_line(statement.lineno, header, indent)
    edits = [Edit(first.start, first.end, start.text + first.text), *rest, timeout]
    if last >= len(source.starts):
        return None
    edits += [source.insert_line(last + 1, line, indent) for line in tail]
    return file.patched(edits)


def _limit_of_others(file: UserFile) -> str:
    """Return the limit in seconds that the other requests of a file have, if it is the same one for all."""
    given = [each.value for call in file.calls(REQUESTS) for each in call.keywords if each.arg == "timeout"]
    found = {each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, int | float)}
    return str(found.pop()) if len(found) == 1 else str(LIMIT_S)


def _is_apart(file: UserFile, statement: ast.stmt) -> bool:
    """Return whether a statement has its lines for itself, and can be run again."""
    lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    single = isinstance(statement, ast.With) and len(statement.body) == 1
    inside = [statement, *nodes_of_body(statement)]
    leaves = any(isinstance(node, ast.Break | ast.Continue | ast.Yield | ast.YieldFrom | ast.Await) for node in inside)
    simple = isinstance(statement, ast.Expr | ast.Assign | ast.Return) or single
    return simple and not leaves and file.source.alone(statement) and not file.source.inside_strings.intersection(lines)


def _gives_a_value(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Return | ast.Assign) for node in (statement, *nodes_of_body(statement)))


def _returns(statement: ast.stmt) -> bool:
    last = statement.body[0] if isinstance(statement, ast.With) else statement
    return isinstance(last, ast.Return)
