"""DW265: samplers that give the ranks of one tensor-parallel model different data."""

import re
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key
from ...training_script.model.reach import Run, argument, together
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

PARALLEL = tuple(f"torch.distributed.tensor.parallel.{inner}parallelize_module" for inner in ("", "api."))
SHARES = {"broadcast", "broadcast_object_list", "scatter", "scatter_object_list", "all_gather", "all_to_all"}
OF_PARTS = re.compile(r"Shard\(0\)")  # a model that takes another part of the batch on each rank


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the samplers over all ranks of a program that splits its model over some, or all, of them."""
    splits = [
        (reach, fact)
        for reach, fact in run.of(*PARALLEL)
        if reach.several and (mesh := argument(fact, 1, "device_mesh")) and _is_mesh(mesh.key)
    ]
    if not splits or not any(run.of(".backward")) or script.mentions(OF_PARTS):
        return
    if any(each.loops and each.name.rpartition(".")[2] in SHARES for each in run.reached):
        return
    loaded = {given.key for _, fact in run.of(*LOADER_CLASSES) if (given := argument(fact, 3, "sampler"))}
    for reach, fact in run.of(*SAMPLER_CLASSES):
        split = next((other for at, other in splits if together(at, reach)), None)
        if split is not None and reach.several and fact.result.key in loaded and _is_over_all(fact):
            yield from violation_at(
                script,
                reach,
                f"the ranks share out the data, and some of them hold parts of one layer (line {split.site.line}): "
                "these add up what they compute of different samples",
                0.85,
                related=[RelatedPlace(path=split.site.path, line=split.site.line, message="the model is split here")],
            )
            return


def _is_mesh(key: Key) -> bool:
    """Return whether a value is a mesh over all ranks, or one dimension of it by its name."""
    if key.op == "item":
        return key.args[0].op == "mesh" and key.args[1].is_constant
    return key.op == "mesh"


def _is_over_all(sampler: Noted) -> bool:
    """Return whether a sampler counts all ranks, as it does when it is passed nothing."""
    count, rank = argument(sampler, 1, "num_replicas"), argument(sampler, 2, "rank")
    of_all = count is None or (count.key.op == "world" and count.key.args[0] == "global")
    of_each = rank is None or (rank.key.op == "rank" and rank.key.args[0] == "global")
    return of_all and of_each and "**" not in sampler.named
