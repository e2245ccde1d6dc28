"""DW430: evaluations with Accelerate that count the samples with which it fills up the last batch."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.lengths import length, number
from ...training_script.model.members import PAIR
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.nodes import nodes_below
from ...training_script.torch_classes import LOADER_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at

TRAINS = ("backward", ".step")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield ``gather`` of batches of an evaluation whose size the ranks do not divide, if nothing is cut off."""
    if script.mentions("gather_for_metrics"):
        return
    sizes = [_samples(fact) for _, fact in run.of(*LOADER_CLASSES)]
    uneven = [count for count, batch in sizes if count and batch and count % (batch * len(PAIR))]
    trained = {loop.site for each in run.reached if each.name.endswith(TRAINS) for loop in each.loops[-1:]}
    for reach, fact in run.of(".gather"):
        of_accelerate = fact.owner is not None and "accelerator" in fact.owner.facts
        measures = bool(reach.loops) and reach.loops[-1].site not in trained and _is_of_model(reach)
        if of_accelerate and uneven and measures and not _cuts_off(script, reach):
            yield from violation_at(
                script,
                reach,
                f"the ranks do not divide the {uneven[0]} samples: gather also gives those with which the last batch "
                "is filled up, and gather_for_metrics leaves them out",
                0.8,
            )


def _samples(loader: Noted) -> tuple[int | None, int | None]:
    data, batch = argument(loader, 0, "dataset"), argument(loader, 1, "batch_size")
    return (
        length(data.key, PAIR[0]) if data else None,
        number(batch.key, PAIR[0]) if batch else None,
    )


def _is_of_model(reach: Reach) -> bool:
    """Return whether what is gathered comes from a model that Accelerate has prepared."""
    values = getattr(reach.fact, "values", [])
    return any("reduced" in value.facts for value in values)


def _cuts_off(script: Script, reach: Reach) -> bool:
    """Return whether a function on the way to a gather cuts something to a length that it computes."""
    lines = [site.line for site in (*reach.calls, reach.fact.site) if site.path == script.source.path]
    for node in nodes_below(script.source.tree):
        if (
            isinstance(node, ast.Slice)
            and node.lower is None
            and node.upper
            and not isinstance(node.upper, ast.Constant)
        ):
            function = script.names.enclosing_function(node.upper)
            if function is None or any(function.lineno <= line <= (function.end_lineno or line) for line in lines):
                return True
    return False
