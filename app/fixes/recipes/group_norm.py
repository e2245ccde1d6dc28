"""``group-norm``: a normalisation of each sample in place of one over the samples of a batch."""

import ast

from ...training_script.edits import Edit
from ...training_script.syntax import last_name
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .error_statement import error_message
from .types import RecipeResult

PHRASE = "value per channel when training"
LAYERS = ("torch.nn.BatchNorm1d", "torch.nn.BatchNorm2d", "torch.nn.BatchNorm3d")
KEPT, DROPPED = ("eps", "affine", "device", "dtype"), ("momentum", "track_running_stats")
PLACES = ("num_features", "eps", "momentum", "affine", "track_running_stats")


def group_norm(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the layers that need several values per channel, if the error says that one has too few."""
    if PHRASE not in error_message(facts):
        return RecipeResult()
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        calls = file.calls(LAYERS)
        edits = [edit for call in calls if (edit := _in_one_group(file, call))]
        places += [file.place(call) for call in calls]
        if len(edits) < len(calls):
            return RecipeResult(places=places)
        patches += [file.patched(edits)] if edits else []
    return RecipeResult(patches=patches, places=places)


def _in_one_group(file: UserFile, call: ast.Call) -> Edit | None:
    """Return the edit that makes a layer of one group of all channels; None if that is not sure."""
    given = dict(zip(PLACES, call.args, strict=False)) | {each.arg: each.value for each in call.keywords if each.arg}
    is_known = len(given) == len(call.args) + len(call.keywords) and given.keys() <= {*PLACES, *KEPT, *DROPPED}
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    if "num_features" not in given or not is_known or starred or not isinstance(call.func, ast.Attribute):
        return None
    source = file.source
    module = source.code(call.func).removesuffix(last_name(call.func))
    kept = "".join(f", {name}={source.one_line(given[name])}" for name in KEPT if name in given)
    return source.replace(call, f"{module}GroupNorm(1, {source.one_line(given['num_features'])}{kept})")
