"""DW207: models that DDP wraps and that are trained without the wrapper, which nothing calls."""

import ast
from collections.abc import Iterator

from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import ALL, Run, argument
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import call_argument
from ...training_script.torch_classes import DDP_CLASSES, is_optimizer
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .unwrapped_forward import BY_HAND


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the one wrapper of a program that computes its losses with what is inside of it, and never calls it."""
    wraps = [each for each in run.of(*DDP_CLASSES) if each[0].several and each[0].ranks == ALL]
    if len(wraps) != 1 or run.function is not None or any(run.of(WRAPPED_FORWARD)) or script.mentions(BY_HAND):
        return
    if any(each.name == BACKWARD for each in run.reached) or script.mentions(".grad"):
        return
    reach, inner = wraps[0][0], argument(wraps[0][1], 0, "module")
    if inner and any(inner.key is value.key for _, fact in run.of(".prepare") for value in fact.values):
        return  # a library wraps it once more
    if script.is_here(reach) and _takes_its_place(script, wraps[0][1].node):
        return
    learned = [each for each, _ in run.of(".backward") if each.loops and each.several]
    models = [each for _, each in run.of(".parameters") if each.owner]
    stepped = any(is_optimizer(each.name) for each in run.reached)
    trained = next((each for each in models if inner and each.owner and each.owner.key is inner.key), None)
    if learned and stepped and trained is not None:
        line = learned[0].fact.site.line
        yield from violation_at(
            script,
            reach,
            f"nothing calls this wrapper: the loss (line {line}) comes from the model inside of it, and no gradients "
            "are reduced over the ranks",
            0.8,
            related=[RelatedPlace(path=learned[0].fact.site.path, line=line, message="the backward pass")],
        )


def _takes_its_place(script: Script, wrap: ast.Call) -> bool:
    """Return whether a wrapper gets the name of the model inside of it, and that name is read below."""
    stmt, given = script.source.statement_of(wrap), call_argument(wrap, "module", 0)
    match stmt, given:
        case ast.Assign(targets=[ast.Name(id=name)], value=value), ast.Name(id=inner) if (
            value is wrap and name == inner
        ):
            around = script.names.enclosing_function(wrap)
            reads = (each for each in nodes_of_kinds(script.source.tree, ast.Name) if each.id == name)
            return any(
                each.lineno > (stmt.end_lineno or stmt.lineno) and script.names.enclosing_function(each) is around
                for each in reads
                if isinstance(each.ctx, ast.Load)
            )
        case _:
            return False
