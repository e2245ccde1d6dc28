"""``call-wrapper``: the training forward through the wrapper in place of its ``module``."""

import ast

from ...training_script.syntax import LOOPS, dotted_name
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .training_code import place_of, wrapped_models
from .types import RecipeResult

WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel")
WITHOUT_GRADIENT = ("no_grad", "inference_mode")


def call_wrapper(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the calls of ``model.module(…)`` in loops that run a backward pass."""
    wrapped = wrapped_models(facts, WRAPPERS)
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        calls = [call for call in file.calls([".module"]) if _trains(file, call) and _owner(call) in wrapped]
        places += [place_of(file, call, "past the wrapper") for call in calls]
        if calls:
            patches.append(file.patched([file.source.replace(call.func, _owner(call)) for call in calls]))
    return RecipeResult(patches=patches, places=places)


def _owner(call: ast.Call) -> str:
    return dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _trains(file: UserFile, call: ast.Call) -> bool:
    """Return whether a call is in a loop with a backward pass, and its gradient is recorded."""
    node: ast.AST | None = call
    trains = False
    while node is not None:
        if isinstance(node, ast.With) and any(
            name in ast.unparse(item.context_expr) for item in node.items for name in WITHOUT_GRADIENT
        ):
            return False
        if isinstance(node, (*LOOPS, ast.FunctionDef)):
            trains |= any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in ast.walk(node))
        node = file.source.parents.get(node)
    return trains
