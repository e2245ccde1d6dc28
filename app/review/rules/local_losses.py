"""DW482: optimizers that decide by the loss of one rank how often they call a closure with collectives."""

import ast
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import DIFFERS, parts
from ...training_script.model.reach import Run, alternatives, argument
from ...training_script.model.sequences import Event
from ...training_script.model.values import Bound, FunctionRef
from ...training_script.nodes import walk
from ..rule_context import Script, Violation
from ..violations import at_node, violation_at

LBFGS = ("torch.optim.LBFGS", "torch.optim.lbfgs.LBFGS")
ITERATIONS = 2  # its place among the arguments
MESSAGE = (
    "L-BFGS decides by this loss of one rank how often it calls the closure and how far it steps, and each call needs "
    "all ranks: they may call it a different number of times, and step to different weights"
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the closures that give L-BFGS the loss of their own rank, and exchange gradients with the others."""
    made = {
        fact.result.key: fact
        for _, fact in run.of(*LBFGS)
        if (most := argument(fact, ITERATIONS, "max_iter")) is None or most.key is not run.keys.constant(1)
    }
    for reach, fact in run.of(".step") if made and run.distributed else ():
        closure = argument(fact, 0, "closure")
        own = fact.owner is not None and any(key in made for key in alternatives(fact.owner.key))
        function = closure.obj if closure else None
        function = function.function if isinstance(function, Bound) else function
        if not own or not reach.several or not isinstance(function, FunctionRef):
            continue
        if not any(isinstance(each.fact, Event) and fact.site in each.calls for each in run.reached):
            continue
        returned = _local_loss(script, function)
        if returned is not None:
            yield from violation_at(script, at_node(script, reach, returned), MESSAGE, 0.8)


def _local_loss(script: Script, closure: FunctionRef) -> ast.expr | None:
    """Return what a closure returns if data of one rank are in it, and no collective has made it one of all."""
    returns = [each.value for each in walk(closure.node) if isinstance(each, ast.Return)]
    for value in [closure.node.body] if isinstance(closure.node, ast.Lambda) else returns:
        key = script.evaluated.value(value) if value is not None else None
        if key is not None and key.differs_by & DIFFERS and not any(part.op in SAME for part in parts(key)):
            return value
    return None
