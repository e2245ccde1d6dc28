"""DW216: models in DDP that use one of several layers in each forward pass."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Run, argument
from ...training_script.model.values import ClassRef, Instance
from ...training_script.nodes import walk
from ...training_script.syntax import dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.call_arguments import find_unused
from ..rule_context import Script, Violation
from ..violations import violation_at
from .alternative_layers import layers_of_one_way

COLLECTIONS = ("ModuleDict", "ModuleList")
ALLOWS_UNUSED = {"find_unused_parameters", "static_graph", "**"}


def check_chosen(script: Script, run: Run) -> Iterator[Violation]:
    """DW216: yield the models in DDP that use one of several layers in each forward pass, as an argument says."""
    for reach, fact in run.of(*DDP_CLASSES):
        model = argument(fact, 0, "module")
        if ALLOWS_UNUSED & fact.named.keys() or model is None or not isinstance(model.obj, Instance):
            continue
        if reach.several and (test := _left_out_by_chance(model.obj.cls)):
            yield from violation_at(
                script,
                reach,
                f"random numbers decide which layers a forward pass of this model leaves out (line {test.lineno}): DDP "
                "waits for the gradients of all",
                0.75,
                patch=partial(find_unused, script, fact.node) if script.is_here(reach) else None,
            )
        one_way = layers_of_one_way(model.obj.cls) if reach.several and _has_one_forward(run) else None
        if one_way:
            yield from violation_at(
                script,
                reach,
                f"only some forward passes of this model use `{one_way[0]}` (line {one_way[1]} decides): DDP waits for "
                "the gradients of all layers",
                0.75,
                patch=partial(find_unused, script, fact.node) if script.is_here(reach) else None,
            )
            continue
        layers = _chosen_layers(script, model.obj.cls)
        if layers and reach.several and _has_one_forward(run):
            yield from violation_at(
                script,
                reach,
                f"each forward pass uses one of the layers in `{layers}` of this model: DDP waits for the gradients of "
                "the others",
                0.75,
                patch=partial(find_unused, script, fact.node) if script.is_here(reach) else None,
            )


def _chosen_layers(script: Script, cls: ClassRef) -> str:
    """Return the attribute with layers of which the forward pass takes one, and reads no others.

    An argument or the rank says which.
    """
    made, forward = cls.methods.get("__init__"), cls.methods.get("forward")
    if made is None or forward is None:
        return ""
    given = {each.arg for each in (*forward.args.args, *forward.args.kwonlyargs)}
    for stmt in made.body:
        match stmt:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call() as call):
                uses = [node for node in walk(cls.node) if isinstance(node, ast.Attribute) and node.attr == name]
                reads = [each for each in uses if isinstance(each.ctx, ast.Load)]
                taken = [node for node in walk(forward) if _takes_by(script, node, name, given)]
                if last_name(call) in COLLECTIONS and taken and len(taken) == len(reads):
                    return name
            case _:
                pass
    return ""


def _left_out_by_chance(cls: ClassRef) -> ast.If | None:
    """Return the condition on a random number under which a forward pass goes on to the next layer of a loop."""
    forward = cls.methods.get("forward")
    return next((test for test in left_out(forward) if _draws(test.test)), None) if forward else None


def left_out(forward: ast.AST) -> Iterator[ast.If]:
    """Yield the conditions under which a forward pass goes on to the next layer of a loop without this one."""
    for loop in walk(forward):
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name):
            continue
        layer = loop.target.id
        for test in loop.body:
            if isinstance(test, ast.If):
                skips = any(isinstance(each, ast.Continue) for each in test.body)
                called = {dotted_name(each.func) for each in walk(test) if isinstance(each, ast.Call)}
                if skips or (layer in called and not test.orelse):
                    yield test


def _draws(test: ast.expr) -> bool:
    drawn = {"random", "rand", "bernoulli", "uniform", "randint"}
    return any(isinstance(node, ast.Call) and last_name(node.func) in drawn for node in walk(test))


def _takes_by(script: Script, node: ast.AST, name: str, given: set[str]) -> bool:
    """Return whether an expression takes an element of an attribute by an argument, or by the rank."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr=attr), slice=index) if attr == name and script.depends_on_rank(
            index
        ):
            return True
        case ast.Subscript(value=ast.Attribute(attr=attr), slice=ast.Name(id=index)):
            return attr == name and index in given
    return False


def _has_one_forward(run: Run) -> bool:
    """Return whether each backward pass is behind one forward pass in DDP, in the same round of a loop of its own."""
    forward = [reach for reach, _ in run.of(WRAPPED_FORWARD)]
    learned = [reach.loops for reach in run.reached if reach.name == BACKWARD]
    if len(forward) == 1:
        return forward[0].loops in learned
    trained = [reach.loops for reach in forward if reach.loops and reach.loops in learned]
    apart = all(trained.count(loops) == 1 for loops in trained)
    return bool(trained) and apart and len(trained) == len(forward)
