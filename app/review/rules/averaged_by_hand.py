"""DW230, DW235, DW255 and DW483: gradients that a program averages by hand too early, too seldom, or twice."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import DIFFERS, Key, parts
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.several_ranks import SET_UP
from ...training_script.model.values import Library
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, LOOPS, dotted_name, is_gradient_attribute, scaled_in_place
from ...training_script.torch_classes import is_optimizer
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import in_function_of, violation_at, violation_at_node

INIT = "torch.distributed.init_process_group"
REDUCE = "torch.distributed.all_reduce"
CUTS = {"narrow", "index_select", "select", "take", "gather"}  # methods that take a part of a tensor
CLEARS = re.compile(r"\.grad(?:\.data)?\s*=\s*None|\bgrad\w*(?:\.data)?\.(?:zero_|fill_)\(")


def by_hand(run: Run) -> list[Reach]:
    """Return the reductions of gradients of a program without DDP."""
    if not run.distributed or any(run.of(*(SET_UP - {INIT}))):
        return []
    return [reach for reach, fact in run.of(REDUCE) if is_gradient(fact) and reach.several]


def cuts_by_rank(script: Script) -> bool:
    """Return whether the rank decides which part of anything is taken."""
    for node in nodes_of_kinds(script.source.tree, ast.Subscript, ast.Call):
        match node:
            case ast.Subscript(slice=place):
                taken = [place]
            case ast.Call(func=ast.Attribute(attr=name), args=places) if name in CUTS:
                taken = places
            case _:
                continue
        if any(map(script.depends_on_rank, taken)):
            return True
    return False


def check_early(script: Script, run: Run) -> Iterator[Violation]:
    """DW230: yield the reductions of gradients before the backward pass whose gradients the step then uses."""
    reduced: Reach | None = None
    behind = False  # a backward pass is behind the reduction
    reduces = by_hand(run)
    for reach in run.reached if reduces else ():
        if any(reach is each for each in reduces):
            reduced, behind = reach, False
        elif reach.name == ".backward":
            # A method of that name that reduces them itself has been through its backward pass.
            behind = reduced is not None and reach.fact.site not in reduced.calls
        elif reach.name == ".step" and reduced and not behind:
            reduced = None  # the step for which they are averaged
        elif reach.name == ".step" and reduced and behind and reduced.loops[:1] == reach.loops[:1] and reach.loops:
            again = [each for each in reduces if each is not reduced and each.loops[:1] == reach.loops[:1]]
            if not again:
                yield from violation_at(
                    script,
                    in_function_of(reduced, [reach]),
                    f"the gradients are averaged before the backward pass of this step (line {reach.fact.site.line}): "
                    "it uses those of one rank",
                    0.85,
                )
                return


def check_accumulated(script: Script, run: Run) -> Iterator[Violation]:
    """DW483: yield the sums over the ranks of gradients that several backward passes add up, in each of them."""
    backward = [reach for reach, _ in run.of(".backward") if reach.loops]
    if not backward or script.mentions(CLEARS):
        return
    for reach in by_hand(run):
        loops = next((each.loops for each in backward if each.loops == reach.loops[: len(each.loops)]), None)
        cleared = [
            each for each, _ in run.of(".zero_grad") if loops and each.loops in (loops, loops[:-1]) and each.loops
        ]
        seldom = [each for each in cleared if each.loops != loops or _is_in_some_rounds(each, reach)]
        in_each = any(each.loops == loops and each not in seldom for each in cleared)
        if in_each or not seldom or not _is_sum(reach) or _divides_there(script, reach):
            continue
        line = seldom[-1].fact.site.line
        yield from violation_at(
            script,
            reach,
            "the gradients are summed over the ranks behind each backward pass, and cleared only every few of them "
            f"(line {line}): what an earlier pass has summed is added up over the ranks again",
            0.8,
            related=[RelatedPlace(path=seldom[-1].fact.site.path, line=line, message="cleared here")],
        )
        return


def _is_in_some_rounds(cleared: Reach, reduced: Reach) -> bool:
    """Return whether gradients are cleared under a condition of only some rounds, and are reduced without it."""
    for each in cleared.conditions:
        in_some = any(part.op == "binary" and part.args[0] == "Mod" for part in parts(each.test))
        if in_some and not each.test.differs_by & DIFFERS and each not in reduced.conditions:
            return True
    return False


def _is_sum(reduced: Reach) -> bool:
    op = argument(reduced.fact, 1, "op") if isinstance(reduced.fact, Noted) else None
    return op is None or (isinstance(op.obj, Library) and op.obj.name.endswith("SUM"))


def _divides_there(script: Script, reduced: Reach) -> bool:
    """Return whether the loop over the parameters divides each gradient that it has summed, or cannot be read."""
    node = reduced.fact.node if isinstance(reduced.fact, Noted) else None
    at: ast.AST | None = script.source.parents.get(node) if node in script.source.parents else None
    if at is None:
        return True
    while at is not None and not isinstance(at, (*LOOPS, *FUNCTIONS)):
        at = script.source.parents.get(at)
    for each in ast.walk(at) if at is not None else ():
        match each:
            case ast.BinOp(op=ast.Div() | ast.Mult()) | ast.AugAssign(op=ast.Div() | ast.Mult()):
                return True
            case ast.Call(func=ast.Attribute(attr="div_" | "div" | "mul_" | "copy_" | "wait")):
                return True
            case _:
                pass
    return False


def check_some(script: Script, run: Run) -> Iterator[Violation]:
    """DW255: yield the conditions that leave gradients of some steps, or of some parameters, to each rank."""
    reduces = by_hand(run)
    steps = [reach for reach, fact in run.of(".step") if is_of_optimizer(run, fact) and reach.loops]
    for reach in reduces:
        around = [step for step in steps if step.loops[:1] == reach.loops[:1]]
        for condition in reach.conditions:
            counts = (
                any(part.op == "number" for part in parts(condition.test)) and not condition.test.differs_by & DIFFERS
            )
            if counts and around and all(condition not in step.conditions for step in around):
                yield from violation_at(
                    script,
                    reach._replace(fact=_at(reach, condition.site)),
                    "in some rounds the gradients are not averaged, and the optimizer steps in all of them (line "
                    f"{around[0].fact.site.line}): the models of the ranks drift apart",
                    0.8,
                )
                return
        if len(reduces) == 1 and (test := _by_shape(script, reach)):
            yield from violation_at(
                script,
                reach,
                f"parameters are left out by their shape (line {test.lineno}), and each rank steps them by its own "
                "gradients: the models of the ranks drift apart",
                0.75,
            )
            return


def _at(reach: Reach, site: object) -> Noted:
    assert isinstance(reach.fact, Noted)
    return reach.fact._replace(site=site)  # pyright: ignore[reportArgumentType]


def _by_shape(script: Script, reach: Reach) -> ast.If | None:
    """Return the condition around a reduction that asks how many dimensions a parameter has."""
    if not script.is_here(reach) or not isinstance(reach.fact, Noted):
        return None
    owner = dotted_name(reach.fact.node.args[0]).partition(".")[0] if reach.fact.node.args else ""
    at = script.source.parents.get(reach.fact.node)
    while at is not None and not isinstance(at, ast.For):
        if isinstance(at, ast.If) and not at.orelse and any(_asks_for_shape(node, owner) for node in ast.walk(at.test)):
            return at
        at = script.source.parents.get(at)
    return None


def _asks_for_shape(node: ast.AST, owner: str) -> bool:
    name = dotted_name(node.func if isinstance(node, ast.Call) else node) if isinstance(node, ast.expr) else ""
    return bool(owner) and name in (f"{owner}.dim", f"{owner}.ndim", f"{owner}.shape", f"{owner}.ndimension")


def check_twice(script: Script, run: Run) -> Iterator[Violation]:
    """DW235: yield the divisions of summed gradients of a loss that is divided by the number of ranks already."""
    losses = [reach for reach, fact in run.of(".backward") if fact.owner and _is_divided(fact.owner.key)]
    if not losses or not by_hand(run):
        return
    for node in nodes_of_kinds(script.source.tree, ast.Call, ast.AugAssign):
        scaled = scaled_in_place(node, ast.Div)
        if scaled and is_gradient_attribute(scaled[0]) and script.is_world_size(scaled[1]):
            line = losses[0].fact.site.line
            yield violation_at_node(
                node,
                f"the gradients are divided by the number of ranks, and so is their loss (line {line})",
                0.8,
                related=[RelatedPlace(path=script.source.path, line=line, message="the loss")],
            )


def _is_divided(loss: Key) -> bool:
    """Return whether a loss is divided by the number of ranks."""
    return loss.op == "binary" and loss.args[0] == "Div" and loss.args[2].op == "world"


def is_gradient(fact: Noted) -> bool:
    given = argument(fact, 0, "tensor")
    return given is not None and "gradient" in given.facts


def is_of_optimizer(run: Run, step: Noted) -> bool:
    made = {
        each.fact.result.key for each in run.reached if isinstance(each.fact, Noted) and is_optimizer(each.fact.name)
    }
    return step.owner is not None and step.owner.key in made
