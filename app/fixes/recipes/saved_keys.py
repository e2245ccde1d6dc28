"""``saved-keys``: the states that a script loads from its checkpoint and does not save."""

import ast
from collections.abc import Iterator

from ...training_script.edits import Edit
from ...training_script.name_resolution import Names
from ...training_script.reaching_values import Absent, values_at
from ...training_script.syntax import call_argument, dotted_name
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .types import RecipeResult

SHARDED = ("ZeroRedundancyOptimizer", "FullyShardedDataParallel", "fully_shard")  # whose states need every rank


def saved_keys(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the dictionary that is saved, with ``state_dict()`` of each object that loads another key."""
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        if file.calls(SHARDED):
            continue
        names = Names(file.source)
        for save, saved, loaded in _checkpoints(file, names):
            known = {key.value for key in saved.keys if isinstance(key, ast.Constant)}
            missing = {key: owner for key, owner in loaded.items() if key not in known}
            if missing and all(_is_bound(names, owner, save) for owner in missing.values()):
                patches.append(file.patched([_with_states(file, saved, missing)]))
                places.append(file.place(saved, "saved here"))
    return RecipeResult(patches=patches if len(patches) == 1 else [], places=places)


def _checkpoints(file: UserFile, names: Names) -> Iterator[tuple[ast.stmt, ast.Dict, dict[str, str]]]:
    """Yield the statements that save a dictionary, with what objects load from the file of the same name by key."""
    for call in file.calls(["torch.save"]):
        given, path = call_argument(call, "obj", 0), call_argument(call, "f", 1)
        saved = _dictionary(names, given) if given else None
        if saved is None or path is None:
            continue
        if saved.keys and all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in saved.keys):
            yield file.source.statement_of(saved), saved, dict(_loaded(file, names, ast.unparse(path)))


def _dictionary(names: Names, given: ast.expr) -> ast.Dict | None:
    origins = names.origins(given)
    return origins[0] if len(origins) == 1 and isinstance(origins[0], ast.Dict) else None


def _loaded(file: UserFile, names: Names, path: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of the file at a path whose states are loaded, each with the object that loads it."""
    for call in file.calls([".load_state_dict"]):
        match call:
            case ast.Call(
                func=ast.Attribute(value=owner),
                args=[ast.Subscript(value=state, slice=ast.Constant(value=str() as key)), *_],
            ) if dotted_name(owner) and any(_is_load(file, each, path) for each in names.origins(state)):
                yield key, dotted_name(owner)
            case _:
                pass


def _is_load(file: UserFile, node: ast.AST, path: str) -> bool:
    if not isinstance(node, ast.Call) or file.qualified(node.func) != "torch.load":
        return False
    given = call_argument(node, "f", 0)
    return given is not None and ast.unparse(given) == path


def _is_bound(names: Names, owner: str, save: ast.stmt) -> bool:
    """Return whether an object surely has a value where the dictionary is made."""
    function = names.enclosing_function(save)
    for node in names.scope_of:
        if not isinstance(node, ast.Name | ast.Attribute) or dotted_name(node) != owner:
            continue
        if names.enclosing_function(node) is function:
            values = values_at(names, node, save)
            return bool(values) and not any(isinstance(value, Absent) for value in values)
    return False


def _with_states(file: UserFile, saved: ast.Dict, missing: dict[str, str]) -> Edit:
    last = [key for key in saved.keys if key is not None][-1]
    at = file.source.start(last)
    return Edit(at, at, "".join(f'"{key}": {owner}.state_dict(), ' for key, owner in missing.items()))
