"""DW216: models in DDP whose forward pass takes one of two ways, each with layers of its own."""

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from ...training_script.model.values import ClassRef
from ...training_script.nodes import walk
from ...training_script.syntax import FUNCTIONS, dotted_name, last_name
from ...training_script.torch_classes import LAYER

CONTAINERS = {"Sequential", "ModuleList", "ModuleDict"}
# Numbers drawn, or computed from a tensor, in a condition.
OF_DATA = {"random", "rand", "bernoulli", "uniform", "randint", "item", "any", "all", "mean", "sum", "max", "min"}


def layers_of_one_way(cls: ClassRef) -> tuple[str, int] | None:
    """Return a layer that only some forward passes use, and the line of the condition that decides it.

    An argument decides between two ways with layers of their own, or a number of the data decides about one layer.
    """
    made, forward = cls.methods.get("__init__"), cls.methods.get("forward")
    if made is None or forward is None:
        return None
    layers = set(_layers(cls, made))
    given = {each.arg for each in (*forward.args.args[1:], *forward.args.kwonlyargs)}
    uses = [node.attr for node in walk(cls.node) if _is_own(node, layers) and isinstance(node.ctx, ast.Load)]
    for test, then, other in _ways(forward.body):
        first, second = (sorted(_used_only_in(way, uses, layers)) for way in (then, other))
        if first and second and _decided_by(test, given):
            return first[0], test.lineno
        own = first or second
        if own and not (first and second) and _is_of_data(test):
            return own[0], test.lineno
    return None


def _layers(cls: ClassRef, made: ast.AST) -> Iterator[str]:
    """Yield the attributes to which a constructor surely assigns a layer with parameters."""
    modules = {
        name
        for name, value in cls.module.env.items()
        if isinstance(value.obj, ClassRef) and any(base.endswith("nn.Module") for base in value.obj.library_bases())
    }
    for stmt in getattr(made, "body", ()):
        match stmt:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call() as call):
                kind = last_name(call)
                inside = (last_name(each) for each in walk(call) if isinstance(each, ast.Call))
                learns = LAYER.fullmatch(kind) or kind in modules
                if learns or (kind in CONTAINERS and any(LAYER.fullmatch(each) for each in inside)):
                    yield name
            case _:
                pass


def _ways(block: Sequence[ast.stmt]) -> Iterator[tuple[ast.expr, Sequence[ast.stmt], Sequence[ast.stmt]]]:
    """Yield the conditions of a function with what it does where they hold, and where they do not."""
    for place, stmt in enumerate(block):
        if isinstance(stmt, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(stmt, ast.If):
            leaves = isinstance(stmt.body[-1], ast.Return)
            yield stmt.test, stmt.body, [*stmt.orelse, *block[place + 1 :]] if leaves else stmt.orelse
            yield from _ways(stmt.body)
            yield from _ways(stmt.orelse)
        else:
            for node in ast.walk(stmt):
                if isinstance(node, ast.IfExp):
                    yield node.test, [ast.Expr(node.body)], [ast.Expr(node.orelse)]
            yield from _ways(getattr(stmt, "body", []))


def _is_own(node: ast.AST, layers: set[str]) -> TypeGuard[ast.Attribute]:
    """Return whether a node is one of these attributes of the object."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in layers
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _used_only_in(way: Sequence[ast.stmt], uses: list[str], layers: set[str]) -> set[str]:
    """Return the layers that a part of the forward pass uses and nothing else in the class does."""
    inside = [node.attr for stmt in way for node in ast.walk(stmt) if _is_own(node, layers)]
    return {name for name in inside if inside.count(name) == uses.count(name)}


def _decided_by(test: ast.expr, given: set[str]) -> bool:
    """Return whether arguments alone decide a condition, other than by being there."""
    if any(isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot) for node in walk(test)):
        return False
    names = {node.id for node in walk(test) if isinstance(node, ast.Name)}
    return bool(names) and names <= given and not any(isinstance(node, ast.Attribute) for node in walk(test))


def _is_of_data(test: ast.expr) -> bool:
    """Return whether a condition asks for a number that is drawn or computed in the forward pass."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        rest = [each for each in test.values if dotted_name(each) != "self.training"]  # which DDP trains in
        return len(rest) < len(test.values) and any(map(_is_of_data, rest))
    asks = any(isinstance(node, ast.Attribute) and node.attr == "training" for node in walk(test))
    return not asks and any(isinstance(node, ast.Call) and last_name(node.func) in OF_DATA for node in walk(test))
