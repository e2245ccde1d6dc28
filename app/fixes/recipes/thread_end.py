"""``thread-end``: a thread that keeps the processes alive ends with the script, after what it still has to do."""

import ast

from ...review.patches.torch_names import import_line
from ...training_script.edits import Edit
from ...training_script.syntax import FUNCTIONS, Function, dotted_name, parameters
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .types import RecipeResult

THREAD = "threading.Thread"


def thread_end(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the threads that nothing joins, if the ranks of the job are leaving Python."""
    if "job.rank-leaving" not in facts.holds:
        return RecipeResult()
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        edits: list[Edit] = []
        for call in file.calls([THREAD]):
            if file.qualified(call.func) == THREAD and (made := _edits(facts, file, call)):
                edits += made
                places.append(file.place(call, "keeps the process alive"))
        if edits and (made := _with_import(file, edits)):
            patches.append(file.patched(made))
    return RecipeResult(patches=patches, places=places)


def _edits(facts: CaseFacts, file: UserFile, call: ast.Call) -> list[Edit]:
    """Return the edits that make a thread a daemon, and call at exit the method of its class that joins it.

    None if it is no attribute, is a daemon, or something calls that method. Daemons still run when ``atexit`` does.
    """
    source, statement = file.source, file.source.statement_of(call)
    daemon = source.add_argument(call, "daemon=True")
    held = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is call else None
    if held is None or daemon is None or any(each.arg in ("daemon", None) for each in call.keywords):
        return []
    name, function = dotted_name(held), source.parents.get(statement)
    if not name.startswith("self.") or not isinstance(function, FUNCTIONS):
        return []
    owner = source.parents.get(function)
    joins = [each for each in _methods(owner) if _calls(each, f"{name}.join")]
    starts = [each for each in function.body if _is_call(each, f"{name}.start")]
    if len(joins) != 1 or len(starts) != 1 or not source.alone(starts[0]) or not source.alone(statement):
        return []
    end = joins[0]
    is_called = any(facts.calls([f".{end.name}"]))
    if is_called or parameters(end) != ["self"] or end.name.startswith("__") or end.decorator_list:
        return []
    line = (starts[0].end_lineno or starts[0].lineno) + 1
    if line > len(source.starts):
        return []
    indent = source.indent(starts[0].lineno)
    return [daemon, source.insert_line(line, f"atexit.register(self.{end.name})", indent)]


def _methods(owner: ast.AST | None) -> list[Function]:
    return [node for node in owner.body if isinstance(node, FUNCTIONS)] if isinstance(owner, ast.ClassDef) else []


def _calls(method: Function, name: str) -> bool:
    return any(isinstance(node, ast.Call) and dotted_name(node.func) == name for node in ast.walk(method))


def _is_call(statement: ast.stmt, name: str) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=func, args=[])):
            return dotted_name(func) == name
        case _:
            return False


def _with_import(file: UserFile, edits: list[Edit]) -> list[Edit]:
    """Return edits with the import of ``atexit``, or none if the file has no import at its top to put it above."""
    if file.imports.get("atexit") == "atexit":
        return edits
    imported = import_line(file.source, "import atexit")
    return [imported, *edits] if imported else []
