"""``launcher-group``: ``init_process_group`` takes rank, world size and address from the launcher."""

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ...training_script.edits import Edit
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .types import RecipeResult

if TYPE_CHECKING:
    from ...training_script.model.evaluated import Evaluated

FROM_THE_LAUNCHER = ("init_method", "rank", "world_size")


def launcher_group(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the groups made with a file, a local rank or the number of GPUs of a node."""
    from ...training_script.model.evaluated import Evaluated

    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        evaluated = Evaluated(file.source.tree, Path(file.path), file.text)
        calls = [call for call in file.calls(["init_process_group"]) if _is_by_hand(evaluated, call)]
        places += [file.place(call) for call in calls]
        if edits := [_with_env(file, call) for call in calls]:
            patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def _is_by_hand(evaluated: "Evaluated", call: ast.Call) -> bool:
    """Return whether a call names what only holds for one start or one node, all of it by keyword."""
    from ...training_script.model.keys import rank_in

    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in given or len(call.args) > 1:
        return False
    method = ast.unparse(given["init_method"]) if "init_method" in given else ""
    value = evaluated.value(given["rank"]) if "rank" in given else None
    rank = rank_in(value) if value else None
    size = ast.unparse(given["world_size"]) if "world_size" in given else ""
    return "file://" in method or (rank is not None and rank.args[0] in ("local", "spawned")) or "device_count" in size


def _with_env(file: UserFile, call: ast.Call) -> Edit:
    source = file.source
    kept = [source.code(arg) for arg in call.args]
    kept += [f"{each.arg}={source.code(each.value)}" for each in call.keywords if each.arg not in FROM_THE_LAUNCHER]
    return source.replace(call, f"{source.code(call.func)}({', '.join(kept)})")
