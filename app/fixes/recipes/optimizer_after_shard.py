"""``optimizer-after-shard``: the optimizer is made behind the statements that shard its model."""

import ast

from ...training_script.edits import Edit
from ...training_script.syntax import dotted_name
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .training_code import block_of, only_statement, place_of
from .types import RecipeResult

SHARDS = ("fully_shard", "FullyShardedDataParallel")


def optimizer_after_shard(facts: CaseFacts) -> RecipeResult:
    """Return the patch that moves an optimizer of a model below the last statement that shards it."""
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        edits: list[Edit] = []
        for call in file.calls([".parameters"]):
            stmt = only_statement(file, call)
            model = dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            if isinstance(stmt, ast.Assign) and model and (last := _last_shard(file, stmt, model)):
                places += [
                    place_of(file, stmt, "made before the model is sharded"),
                    place_of(file, last, "sharded here"),
                ]
                edits += _moved(file, stmt, last)
        if edits:
            patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def _last_shard(file: UserFile, optimizer: ast.Assign, model: str) -> ast.stmt | None:
    """Return the last statement behind ``optimizer`` that shards the model, if nothing before it uses the optimizer."""
    block = block_of(file, optimizer)
    behind = block[block.index(optimizer) + 1 :]
    shards = [stmt for stmt in behind if _shards(file, stmt, model)]
    if not shards:
        return None
    names = {dotted_name(target) for target in optimizer.targets}
    between = behind[: behind.index(shards[-1]) + 1]
    used = {
        dotted_name(node) for stmt in between for node in ast.walk(stmt) if isinstance(node, (ast.Name, ast.Attribute))
    }
    return shards[-1] if not used & names and file.source.alone(shards[-1]) else None


def _shards(file: UserFile, stmt: ast.stmt, model: str) -> bool:
    """Return whether a statement shards the model itself; its blocks are sharded before."""
    calls = (node for node in ast.walk(stmt) if isinstance(node, ast.Call))
    return any(
        file.qualified(call.func).rpartition(".")[2] in SHARDS
        and bool(call.args)
        and dotted_name(call.args[0]) == model
        for call in calls
    )


def _moved(file: UserFile, stmt: ast.stmt, last: ast.stmt) -> list[Edit]:
    source = file.source
    first, end = stmt.lineno, stmt.end_lineno or stmt.lineno
    removed = source.remove_lines(first, end)
    code = source.text[removed.start : removed.end]
    behind = last.end_lineno or last.lineno
    at = source.starts[behind] if behind < len(source.starts) else len(source.text)
    code = code if at < len(source.text) or source.text.endswith("\n") else source.newline + code.rstrip("\r\n")
    return [removed, Edit(at, at, code)]
