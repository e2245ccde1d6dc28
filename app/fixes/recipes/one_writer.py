"""``one-writer``: ``torch.save`` on rank 0 only, where every rank writes the same file."""

import ast

from ...review.rule_context import Script
from ...training_script.edits import Edit
from ...training_script.syntax import call_argument
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .training_code import (
    always_runs,
    distributed_module,
    only_statement,
    place_of,
    runs_on_one_rank,
    same_call,
)
from .types import RecipeResult

# Every rank has to enter the state_dict of a sharded model.
SHARDED = ("FullyShardedDataParallel", "fully_shard", "deepspeed.initialize", "get_model_state_dict", "get_state_dict")


def one_writer(facts: CaseFacts) -> RecipeResult:
    """Return the patch that puts each save of a file that all ranks share under a condition on the rank."""
    if next(facts.calls(SHARDED), None) or not next(facts.calls(["init_process_group"]), None):
        return RecipeResult()
    loads = {ast.dump(call.args[0]) for _, call in facts.calls(["torch.load"]) if call.args}
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        script = Script(file.text, file.path) if file.source.tree.body else None
        edits: list[Edit] = []
        for save in file.calls(["torch.save"]):
            path = call_argument(save, "f", 1)
            same = same_call(script, save) if script else None
            if script is None or path is None or same is None or _is_of_one_rank(script, same):
                continue
            places.append(place_of(file, save, "every rank writes this file"))
            is_loaded = ast.dump(path) in loads
            if not is_loaded or always_runs(script, same):
                edits += _edits(file, save, is_loaded)
        if edits:
            patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def _is_of_one_rank(script: Script, save: ast.Call) -> bool:
    """Return whether only one rank saves, or each rank a file of its own."""
    path = call_argument(save, "f", 1)
    return runs_on_one_rank(script, save) or (path is not None and script.depends_on_rank(path))


def _edits(file: UserFile, save: ast.Call, is_loaded: bool) -> list[Edit]:
    """Return the edits of one save; a file that is loaded again is there for every rank behind it."""
    source, dist, stmt = file.source, distributed_module(file), only_statement(file, save)
    if not dist or not isinstance(stmt, ast.Expr) or stmt.value is not save:
        return []
    indent = source.indent(stmt.lineno)
    edits = [
        source.insert_line(stmt.lineno, f"if not {dist}.is_initialized() or {dist}.get_rank() == 0:", indent),
        *source.indented(stmt),
    ]
    behind = (stmt.end_lineno or stmt.lineno) + 1
    if is_loaded:
        if behind > len(source.starts):
            return []
        edits += [
            source.insert_line(behind, f"if {dist}.is_initialized():", indent),
            source.insert_line(behind, f"    {dist}.barrier()", indent),
        ]
    return edits
