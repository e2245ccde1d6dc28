"""``optimizer-after-shard``: the optimizer is made behind the statements that shard its model."""

import ast

from ...review.patches.move_statement import block_of, may_move_below, moved_below
from ...training_script.edits import Edit
from ...training_script.syntax import dotted_name
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .training_code import only_statement, place_of
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
                edits += moved_below(file.source, stmt, last)
        if edits:
            patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def _last_shard(file: UserFile, optimizer: ast.Assign, model: str) -> ast.stmt | None:
    """Return the last statement behind ``optimizer`` that shards the model, if nothing before it uses the optimizer."""
    block = block_of(file.source, optimizer)
    behind = block[block.index(optimizer) + 1 :]
    shards = [stmt for stmt in behind if _shards(file, stmt, model)]
    if not shards:
        return None
    return shards[-1] if may_move_below(file.source, optimizer, shards[-1]) else None


def _shards(file: UserFile, stmt: ast.stmt, model: str) -> bool:
    """Return whether a statement shards the model itself; its blocks are sharded before."""
    calls = (node for node in ast.walk(stmt) if isinstance(node, ast.Call))
    return any(
        file.qualified(call.func).rpartition(".")[2] in SHARDS
        and bool(call.args)
        and dotted_name(call.args[0]) == model
        for call in calls
    )
