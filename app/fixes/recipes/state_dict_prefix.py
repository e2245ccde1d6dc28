"""``strip-prefix`` and ``save-unwrapped``: names in a checkpoint with or without the wrapper's ``module.``."""

import ast

from ...training_script.edits import Edit
from ...training_script.syntax import dotted_name
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .types import RecipeResult

STRIP = "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present"
WRAPPERS = ("DistributedDataParallel", "DataParallel")


def strip_prefix(facts: CaseFacts) -> RecipeResult:
    """Return the patch that removes ``module.`` from the names before ``load_state_dict``."""
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file, call in facts.calls([".load_state_dict"]):
        owner = dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        statement = _statement(file, call)
        if not owner or not call.args or "optim" in owner or "sched" in owner or statement is None:
            continue
        places.append(file.place(call, "loaded here"))
        if any(patch.path == file.path for patch in patches):
            continue
        source, indent = file.source, file.source.indent(statement.lineno)
        state = call.args[0]
        name = source.code(state) if isinstance(state, ast.Name) else "state"
        lines = [] if isinstance(state, ast.Name) else [f"{name} = {source.one_line(state)}"]
        lines += [f'{STRIP}({name}, "{prefix}")' for prefix in ("_orig_mod.", "module.")]
        edits = [source.insert_line(statement.lineno, line, indent) for line in lines]
        edits += [] if isinstance(state, ast.Name) else [source.replace(state, name)]
        edits += _import_torch(file)
        patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def save_unwrapped(facts: CaseFacts) -> RecipeResult:
    """Return the patch that saves the state of ``model.module`` in place of that of the wrapper."""
    wrapped: set[str] = set()
    for file, call in facts.calls(WRAPPERS):
        parent = file.source.parents.get(call)
        if isinstance(parent, ast.Assign):
            wrapped |= {dotted_name(target) for target in parent.targets}
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        edits: list[Edit] = []
        for save in file.calls(["torch.save"]):
            for node in ast.walk(save):
                match node:
                    case ast.Call(func=ast.Attribute(value=owner, attr="state_dict")) if dotted_name(owner) in wrapped:
                        edits.append(file.source.replace(owner, f"{file.source.code(owner)}.module"))
                        places.append(file.place(node))
        if edits:
            patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def _statement(file: UserFile, node: ast.AST) -> ast.stmt | None:
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.stmt):
        at = file.source.parents.get(at)
    return at if isinstance(at, ast.Expr | ast.Assign) and file.source.alone(at) else None


def _import_torch(file: UserFile) -> list[Edit]:
    if file.imports.get("torch") == "torch":
        return []
    first = next((node.lineno for node in file.source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)), 1)
    return [file.source.insert_line(first, "import torch", "")]
