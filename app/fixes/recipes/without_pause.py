"""``without-pause``: the statement at which a rank stops for a person or a signal, taken out of the script."""

import ast

from ...training_script.syntax import contains_line
from ..facts import CaseFacts
from ..user_code import UserFile
from .types import RecipeResult

DEBUGGERS = ("pdb.set_trace", "ipdb.set_trace", "pudb.set_trace", "code.interact", "IPython.embed")
PROMPTS = ("breakpoint", "input")  # of Python itself
STOPS = ("signal.SIGSTOP", "signal.SIGTSTP")


def without_pause(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the line at which the rank was seen, if its statement does nothing but stop."""
    report = facts.context.report
    where = facts.place(report.verdict.where or "", "stops here") if report else None
    file = facts.file_as_started(where.path) if where else None
    if where is None or file is None:
        return RecipeResult()
    nodes = (node for node in ast.walk(file.source.tree) if isinstance(node, ast.Expr))
    found = [node for node in nodes if contains_line(node, where.line)]
    if len(found) != 1 or not file.source.alone(found[0]) or not _stops(file, found[0].value):
        return RecipeResult(places=[where])
    statement, source = found[0], file.source
    if len(source.block_of(statement)) == 1:
        edit = source.replace(statement, "pass")
    else:
        edit = source.remove_lines(statement.lineno, statement.end_lineno or statement.lineno)
    return RecipeResult(patches=[file.patched([edit])], places=[where])


def _stops(file: UserFile, call: ast.expr) -> bool:
    """Return whether an expression only asks a person, or stops its own process."""
    if not isinstance(call, ast.Call):
        return False
    if isinstance(call.func, ast.Name) and call.func.id in PROMPTS and call.func.id not in file.imports:
        return True
    match file.qualified(call.func), call.args:
        case name, _ if name in DEBUGGERS:
            return True
        case "os.kill", [ast.Call(func=whose, args=[]), sent]:
            return file.qualified(whose) == "os.getpid" and file.qualified(sent) in STOPS
        case "signal.raise_signal", [sent]:
            return file.qualified(sent) in STOPS
        case _:
            return False
