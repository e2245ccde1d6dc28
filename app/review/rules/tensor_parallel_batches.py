"""DW311: ranks that compute one model together by tensor parallelism, each with another batch."""

from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.reach import Run, argument
from ...training_script.torch_classes import SAMPLER_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

PARALLELIZE = tuple(f"torch.distributed.tensor.parallel.{inner}parallelize_module" for inner in ("", "api."))
SENDS = tuple(f"torch.distributed.{name}" for name in ("broadcast", "broadcast_object_list", "scatter"))


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the samplers that divide the data among all ranks, if a model is divided among ranks as well."""
    divided = next((fact for reach, fact in run.of(*PARALLELIZE) if reach.several), None)
    if divided is None or any(reach.loops for reach, _ in run.of(*SENDS)):
        return
    for reach, fact in run.of(*SAMPLER_CLASSES):
        if reach.several and _is_of_all_ranks(fact):
            site = divided.site
            yield from violation_at(
                script,
                reach,
                f"parallelize_module (line {site.line}) lets the ranks of a mesh compute one batch together, and this "
                "sampler gives each rank a batch of its own: take the size and the rank of the data-parallel dimension",
                0.8,
                related=[RelatedPlace(path=site.path, line=site.line, message="divided among ranks")],
            )


def _is_of_all_ranks(sampler: Noted) -> bool:
    """Return whether a sampler counts all ranks of the job."""
    count, rank = argument(sampler, 1, "num_replicas"), argument(sampler, 2, "rank")
    if "**" in sampler.named or (count and not (count.key.op == "world" and count.key.args[0] == "global")):
        return False
    return rank is None or (rank.key.op == "rank" and rank.key.args[0] == "global")
