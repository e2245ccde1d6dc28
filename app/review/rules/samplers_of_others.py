"""DW312: samplers of another dataset than that of the loader which gets them."""

from collections.abc import Iterator
from functools import partial

from ...training_script.model.length_differences import differ
from ...training_script.model.lengths import length
from ...training_script.model.members import PAIR
from ...training_script.model.reach import Run, argument
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from ..patches.own_data import sampler_of_loader
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loaders with a sampler for more samples, or fewer, than their dataset has."""
    made = list(run.of(*SAMPLER_CLASSES))
    for reach, fact in run.of(*LOADER_CLASSES) if made else ():
        data, sampler = argument(fact, 0, "dataset"), argument(fact, 3, "sampler")
        of_key = [(at, each) for at, each in made if sampler and each.result.key is sampler.key]
        # A function that is called for several datasets makes a sampler in each of its calls.
        other = next((each for at, each in of_key if at.calls == reach.calls or len(of_key) == 1), None)
        given = argument(other, 0, "dataset") if other else None
        if data is None or given is None or other is None or data.key is given.key or not reach.several:
            continue
        own, drawn = (length(value.key, PAIR[0]) for value in (data, given))
        if own is None or drawn is None or own == drawn or differ(data.key, length):
            continue
        effect = (
            "it asks for samples that are not there" if drawn > own else f"only the first {drawn} samples are ever read"
        )
        yield from violation_at(
            script,
            reach,
            f"this loader has {own} samples, and its sampler is one for a dataset of {drawn} (line {other.site.line}): "
            f"{effect}",
            0.85,
            related=[RelatedPlace(path=other.site.path, line=other.site.line, message="the sampler is made here")],
            patch=partial(sampler_of_loader, script, other.node, fact.node) if script.is_here(reach) else None,
        )
