"""DW242: states of a model that the ranks keep of different rounds."""

from collections.abc import Iterator
from functools import partial

from ...training_script.model.collective_effects import OF_ONE_RANK, SAME
from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.model.reach import Run, argument
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from ..patches.call_arguments import reduce_on_all
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

REDUCE = "torch.distributed.reduce"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reductions to one rank by which each rank chooses the state that it loads later."""
    loaded = {
        part
        for reach, fact in run.of(".load_state_dict")
        if reach.several and (state := argument(fact, 0, "state_dict"))
        for part in parts(state.key)
    }
    changed = {part.args[1:3] for part in loaded if part.op in ("altered", "changing", "counted")}
    yield from _by_own_part(script, run, loaded, changed)
    reductions = {(fact.site.line, fact.site.column): (reach, fact) for reach, fact in run.of(REDUCE)}
    for reach, fact in run.of(".state_dict") if loaded and reductions else ():
        kept = fact.result.key in loaded or any(loop.site[:2] in changed for loop in reach.loops)
        if not kept or not reach.several:
            continue
        for condition in reach.conditions:
            for _, *place in _reduced(condition.test):
                if (place[0], place[1]) in reductions:
                    reduction, reduce = reductions[place[0], place[1]]
                    yield from violation_at(
                        script,
                        reduction,
                        "reduce gives its result to one rank, and every rank chooses the state that it loads later by "
                        f"what it has (line {condition.site.line}): the models of the ranks differ",
                        0.8,
                        related=[
                            RelatedPlace(path=condition.site.path, line=condition.site.line, message="chosen here")
                        ],
                        patch=partial(reduce_on_all, script, reduce.node) if script.is_here(reduction) else None,
                    )


def _by_own_part(script: Script, run: Run, loaded: set[Key], changed: set[tuple[object, ...]]) -> Iterator[Violation]:
    """Yield the states that each rank keeps by what it computes of its part of the data."""
    samplers = {sampler.result.key for _, sampler in run.of(*SAMPLER_CLASSES)}
    loaders = [argument(loader, 3, "sampler") for _, loader in run.of(*LOADER_CLASSES)]
    if not loaded or not samplers or not all(given and given.key in samplers for given in loaders):
        return
    for reach, fact in run.of(".state_dict"):
        kept = fact.result.key in loaded or any(loop.site[:2] in changed for loop in reach.loops)
        if not kept or not reach.several:
            continue
        own = [
            each
            for each in reach.conditions
            if each.test.op == "compare"
            and each.test.differs_by & LOCAL
            and not any(part.op in SAME for part in parts(each.test))
        ]
        if own:
            yield from violation_at(
                script,
                reach,
                "each rank keeps the state of the epoch that is best on its own part of the data (line "
                f"{own[-1].site.line}), and loads it later: the models of the ranks differ from then on",
                0.8,
                branch=own[-1].site.line if own[-1].site.path == script.source.path else None,
            )
            return


def _reduced(test: Key) -> Iterator[tuple[str, int, int]]:
    """Yield the places of the reductions to one rank whose results are in a value."""
    for part in parts(test):
        if part.op == "local" and part.args[0] == OF_ONE_RANK:
            yield part.args[1], part.args[2], part.args[3]
