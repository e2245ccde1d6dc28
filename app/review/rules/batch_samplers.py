"""DW495: DistributedSamplers that a DataLoader gets as its batch_sampler."""

from collections.abc import Iterator

from ...training_script.model.reach import Run, alternatives, argument
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at

PLACE = 4  # of batch_sampler among the arguments


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loaders that take each index of a DistributedSampler for a whole batch."""
    samplers = {fact.result.key for _, fact in script.noted(*SAMPLER_CLASSES)}
    for reach, fact in run.of(*LOADER_CLASSES) if samplers else ():
        given = argument(fact, PLACE, "batch_sampler")
        if given is not None and not samplers.isdisjoint(alternatives(given.key)):
            yield from violation_at(
                script,
                reach,
                "a DistributedSampler gives single indices, and batch_sampler takes each of them for a batch: the "
                "loader ends with a TypeError as soon as it reads one",
                0.9,
            )
