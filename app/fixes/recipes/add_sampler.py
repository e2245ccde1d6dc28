"""``add-sampler``: a DistributedSampler for each loader that shuffles, and ``set_epoch`` in its epoch loop."""

import ast

from ...review.patches.add_sampler import sampler_edits
from ...review.patches.apply_edits import apply_edits
from ...training_script.edits import Edit
from ..facts import CaseFacts
from ..types import FilePatch, Place
from .training_code import distributed_module, place_of
from .types import RecipeResult

# These give each rank its part themselves.
SHARDS = ("DistributedSampler", "Accelerator", "Trainer", "Fabric", ".prepare", "deepspeed.initialize")


def add_sampler(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the loaders with ``shuffle=True`` and without a sampler."""
    from ...review.rules.loaders import with_set_epoch

    if next(facts.calls(SHARDS), None) or not next(facts.calls(["init_process_group"]), None):
        return RecipeResult()
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        edits: list[Edit] = []
        taken = {node.id for node in ast.walk(file.source.tree) if isinstance(node, ast.Name)}
        for loader in file.calls(["DataLoader"]):
            if not (made := sampler_edits(file.source, loader, distributed_module(file), taken)):
                continue
            edits += made
            places.append(place_of(file, loader, "every rank reads all of it"))
        if edits:
            after = with_set_epoch(apply_edits(file.text, edits), file.path)
            patches.append(FilePatch(path=file.path, before=file.text, after=after))
    return RecipeResult(patches=patches, places=places)
