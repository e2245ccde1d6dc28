"""DW430: sums and lists of an evaluation in which the samples that a DistributedSampler repeats are counted twice."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Accumulated, Key, parts
from ...training_script.model.lengths import length, number
from ...training_script.model.members import PAIR
from ...training_script.model.reach import Run, argument
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import last_name
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .meters import is_metered
from .unequal_parts import TRAINS, behind, sent


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW430: yield the DistributedSamplers that repeat samples of a test set over which all ranks sum something up."""
    padded = [(reach, sampler) for reach, sampler in run.of(*SAMPLER_CLASSES) if reach.several]
    padded = [(reach, sampler) for reach, sampler in padded if _repeats(sampler, run)]
    trained = {loop.amount for each in run.reached if each.name in TRAINS for loop in each.loops} if padded else set()
    for reach, sampler in padded:
        loaders = {
            loader.result.key
            for _, loader in run.of(*LOADER_CLASSES)
            if (given := argument(loader, 3, "sampler")) and given.key is sampler.result.key
        }
        sums = [
            (
                reduction,
                any(_goes_over(each.accumulated, loaders, trained) for each in parts(given.key) if each.accumulated)
                or is_metered(script, given.key, loaders),
            )
            for _, reduction, given in sent(run, "all_reduce", "reduce")
        ]
        for reduction, is_of_test in sums:
            if is_of_test:
                yield from violation_at(
                    script,
                    reach,
                    "this sampler repeats samples to give all ranks equally many, and the sum over the ranks "
                    f"(line {reduction.site.line}) counts them twice",
                    0.75,
                    related=[
                        RelatedPlace(path=reduction.site.path, line=reduction.site.line, message="summed up here")
                    ],
                )
                break
        for gather, collected, given in sent(run, "all_gather", "all_gather_into_tensor", "gather"):
            listed = [
                each for each in parts(given.key) if each.accumulated and _goes_over(each.accumulated, loaders, trained)
            ]
            if listed and not (_cuts_off(script) or _puts_in_places(script)):
                yield from violation_at(
                    script,
                    behind(gather, listed[0]),
                    f"the sampler (line {sampler.site.line}) repeats samples to give all ranks equally many: what is "
                    "gathered has them twice, and nothing cuts them off",
                    0.75,
                    related=[RelatedPlace(path=collected.site.path, line=collected.site.line, message="gathered here")],
                )
                break


def _cuts_off(script: Script) -> bool:
    """Return whether something in the script is cut to a length that it computes."""
    slices = nodes_of_kinds(script.source.tree, ast.Slice)
    return any(node.lower is None and node.upper and not isinstance(node.upper, ast.Constant) for node in slices)


def _puts_in_places(script: Script) -> bool:
    """Return whether a loop over two lists at once puts the elements of one in the places that the other names."""
    for loop in nodes_of_kinds(script.source.tree, ast.For):
        if not isinstance(loop.iter, ast.Call) or last_name(loop.iter.func) != "zip":
            continue
        names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
        for stmt in loop.body:
            match stmt:
                case ast.Assign(targets=[ast.Subscript(slice=ast.Name(id=place))], value=ast.Name(id=value)):
                    if {place, value} <= names:
                        return True
                case _:
                    pass
    return False


def _repeats(sampler: Noted, run: Run) -> bool:
    """Return whether a sampler for a test set gives a sample to two ranks, as their number does not divide the set."""
    data, shuffle = argument(sampler, 0, "dataset"), argument(sampler, 3, "shuffle")
    drops = argument(sampler, 5, "drop_last")
    size = run.keys.sizes.get(data.key) if data else None
    count = number(size, PAIR[0]) if size else length(data.key, PAIR[0]) if data else None
    in_order = shuffle is not None and shuffle.key is run.keys.false
    return in_order and drops is None and count is not None and bool(count % len(PAIR))


def _goes_over(accumulated: Accumulated, loaders: set[Key], trained: set[Key]) -> bool:
    """Return whether rounds over one of these loaders make a value, and none of them trains."""
    return accumulated.rounds not in trained and not loaders.isdisjoint(parts(accumulated.rounds))
