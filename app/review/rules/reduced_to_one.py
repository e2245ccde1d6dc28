"""DW473: results of ``reduce`` with which ranks compute that do not get them."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.collective_effects import OF_ONE_RANK
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Run, argument
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import FUNCTIONS
from ..patches.call_arguments import reduce_on_all
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .own_changes import IN_PLACE

REDUCE = "torch.distributed.reduce"
SENDS_BACK = (
    *(f"torch.distributed.{name}" for name in ("broadcast", "all_gather", "broadcast_object_list", "scatter")),
)
OF_MODEL = (".grad", ".data", ".weight", ".bias")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reductions to one rank whose results change gradients, inputs or parameters of all ranks."""
    if not script.mentions("reduce("):
        return
    for reach, fact in run.of(REDUCE):
        root = argument(fact, 1, "dst", "group_dst")
        if not (reach.by_all and root and root.key.is_constant and script.is_here(reach)):
            continue
        used = _stepped(script, run, fact) or _computed(script, run, fact)
        if used is not None:
            line, what = used
            yield from violation_at(
                script,
                reach,
                f"reduce gives the result to rank {root.key.value} alone, and all ranks use it for {what} (line {line}"
                "): all_reduce gives it to each of them",
                0.85,
                patch=partial(reduce_on_all, script, fact.node),
                related=[RelatedPlace(path=script.source.path, line=line, message="used here by all ranks")],
            )


def _stepped(script: Script, run: Run, fact: Noted) -> tuple[int, str] | None:
    """Return the step that all ranks take with gradients of which one has the sum, if nothing is sent back."""
    given = fact.node.args[0] if fact.node.args else None
    if given is None or ".grad" not in script.source.code(given) or any(run.of(*SENDS_BACK)):
        return None
    steps = [each for each, _ in run.of(".step") if each.by_all]
    return (steps[0].fact.site.line, "the step") if steps and script.is_here(steps[0]) else None


def _computed(script: Script, run: Run, fact: Noted) -> tuple[int, str] | None:
    """Return where the result goes into what all ranks train with, and what that is."""
    place = fact.site[:2]
    for name, what in ((WRAPPED_FORWARD, "the forward pass"), (".backward", "the loss")):
        for reach, call in run.of(name):
            values = [*call.values, *call.named.values(), *([call.owner] if call.owner else [])]
            if reach.by_all and script.is_here(reach) and any(_holds(value.key, place) for value in values):
                return reach.fact.site.line, what
    for node in nodes_of_kinds(script.source.tree, ast.AugAssign, ast.Call):
        match node:
            case ast.AugAssign(target=target, value=value):
                given = [value]
            case ast.Call(func=ast.Attribute(value=target, attr=method), args=[*given]) if method in IN_PLACE:
                pass
            case _:
                continue
        changes = any(part in script.source.code(target) for part in OF_MODEL)
        if changes and any(_is_result(script, each, place) for each in given) and not _is_of_some(script, node):
            return node.lineno, "the gradients" if ".grad" in script.source.code(target) else "the parameters"
    return None


def _is_result(script: Script, node: ast.expr, place: tuple[object, ...]) -> bool:
    key = script.evaluated.value(node)
    return key is not None and _holds(key, place)


def _holds(key: Key, place: tuple[object, ...]) -> bool:
    """Return whether the result of the reduction at a place is in a value."""
    return any(part.op == "local" and part.args[0] == OF_ONE_RANK and part.args[1:3] == place for part in parts(key))


def _is_of_some(script: Script, node: ast.AST) -> bool:
    """Return whether a condition on the rank is around a node, in its function."""
    at: ast.AST | None = node
    while at is not None and not isinstance(at, FUNCTIONS):
        if isinstance(at, ast.If | ast.IfExp) and script.depends_on_rank(at.test):
            return True
        at = script.source.parents.get(at)
    return False
