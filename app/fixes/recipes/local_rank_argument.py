"""``local-rank-argument``: the parser of the script takes ``--local_rank`` from LOCAL_RANK, which torchrun sets."""

import ast

from ...training_script.edits import Edit
from ...training_script.syntax import call_argument
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .types import RecipeResult

SPELLINGS = ("--local-rank", "--local_rank")
REPLACED = ("default", "required")


def local_rank_argument(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the arguments for the local rank that do not read LOCAL_RANK or know one spelling only."""
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        calls = [call for call in file.calls([".add_argument"]) if _is_to_change(call)]
        places += [file.place(call) for call in calls]
        above = _import_of_os(file)
        if calls and above is not None:
            patches.append(file.patched([*above, *(_with_environment(file, call) for call in calls)]))
    return RecipeResult(patches=patches, places=places)


def _is_to_change(call: ast.Call) -> bool:
    flags = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    if len(flags) < len(call.args) or not set(flags) & set(SPELLINGS):
        return False
    if any(keyword.arg in (None, "action", "nargs") for keyword in call.keywords):
        return False
    default = call_argument(call, "default")
    reads = default is not None and "LOCAL_RANK" in ast.unparse(default)
    return not (reads and set(SPELLINGS) <= set(flags) and call_argument(call, "required") is None)


def _import_of_os(file: UserFile) -> list[Edit] | None:
    """Return the edits that import ``os`` at the top, or None if the file imports nothing there."""
    imports = [node for node in file.source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.asname or alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    first = next((each for each in imports if getattr(each, "module", "") != "__future__"), None)
    if first is None or "os" in names:
        return None if first is None else []
    return [file.source.insert_line(first.lineno, "import os", "")]


def _with_environment(file: UserFile, call: ast.Call) -> Edit:
    """Return the edit that adds the other spelling, and LOCAL_RANK before the default that the script has."""
    source = file.source
    default = call_argument(call, "default")
    value = ast.unparse(default) if default is not None else "0"
    if "LOCAL_RANK" not in value:
        value = f'int(os.environ.get("LOCAL_RANK", {value if _is_number(default) else 0}))'
    flags = [source.code(arg) for arg in call.args]
    flags += [f'"{each}"' for each in SPELLINGS if each not in {ast.literal_eval(arg) for arg in call.args}]
    kept = [f"{each.arg}={source.code(each.value)}" for each in call.keywords if each.arg not in REPLACED]
    if call_argument(call, "type") is None:
        kept.append("type=int")
    return source.replace(call, f"{source.code(call.func)}({', '.join([*flags, *kept, f'default={value}'])})")


def _is_number(default: ast.expr | None) -> bool:
    if isinstance(default, ast.UnaryOp):
        default = default.operand
    return isinstance(default, ast.Constant) and type(default.value) is int
