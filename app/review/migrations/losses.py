"""The loss of a training step: the expressions that it comes from, and how it reduces over samples."""

import ast
from collections.abc import Iterator

from ...training_script.name_resolution import Names
from ...training_script.syntax import Function, call_argument, dotted_name, last_name
from .facts import TrainingFacts

SCALES = {"scale", "item", "detach", "float", "cpu", "clone", "double", "squeeze"}


def is_loss(facts: TrainingFacts, name: ast.Name) -> bool:
    """Return whether a name is one that ``backward`` is called on."""
    bound = {binding.at for binding in facts.names.bindings(name)}
    receivers = (node for call in facts.backwards for node in ast.walk(_receiver(call)))
    return any(
        isinstance(node, ast.Name)
        and node.id == name.id
        and not bound.isdisjoint(binding.at for binding in facts.names.bindings(node))
        for node in receivers
    )


def loss_sources(facts: TrainingFacts) -> list[ast.Call]:
    """Return the calls that compute the loss: ``criterion(…)``, ``F.cross_entropy(…)``, ``x.mean()``, ``model(…)``."""
    found: dict[ast.Call, None] = {}
    for call in facts.backwards:
        found |= dict.fromkeys(_sources(facts.names, _receiver(call), set()))
    return [*found]


def returned_sources(names: Names, function: Function) -> list[ast.Call]:
    """Return the calls that compute what a loss function returns."""
    found: dict[ast.Call, None] = {}
    for value in names.returned_values(function):
        found |= dict.fromkeys(_sources(names, value, set()))
    return [*found]


def is_sum(source: ast.Call) -> bool:
    """Return whether a call sums over samples: ``x.sum()``, ``f(…, reduction="sum")``."""
    is_method = isinstance(source.func, ast.Attribute)
    return option(source, "reduction") == "sum" or (is_method and functional_name(source) == "sum")


def creation(facts: TrainingFacts, source: ast.Call) -> ast.Call | None:
    """Return the call that made the loss module which ``source`` calls, such as ``nn.CrossEntropyLoss()``."""
    of, moves = source.func, set[ast.AST]()
    while made := [leaf for leaf in facts.names.origins(of) if isinstance(leaf, ast.Call) and leaf not in moves]:
        if not isinstance(made[0].func, ast.Attribute) or made[0].func.attr not in ("to", "cuda"):
            return made[0]
        moves.add(made[0])
        of = made[0].func.value
    return None


def option(call: ast.Call, name: str) -> object:
    """Return the constant that a call gets for an option, or None."""
    given = call_argument(call, name)
    return given.value if isinstance(given, ast.Constant) else None


def _receiver(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


def _sources(names: Names, expr: ast.AST, seen: set[ast.AST]) -> Iterator[ast.Call]:
    if expr in seen:
        return
    seen.add(expr)
    match expr:
        case ast.BinOp(left=left, right=right):
            yield from _sources(names, left, seen)
            yield from _sources(names, right, seen)
        case ast.Call(func=ast.Attribute(attr="scale"), args=[inner, *_]):
            yield from _sources(names, inner, seen)
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in SCALES:
            yield from _sources(names, value, seen)
        case ast.Call():
            leaves = names.origins(expr)
            if leaves == [expr]:
                yield expr
            else:
                for leaf in leaves:
                    yield from _sources(names, leaf, seen)
        case ast.Name() | ast.Attribute():
            for leaf in names.origins(expr):
                if leaf is not expr:
                    yield from _sources(names, leaf, seen)
        case _:
            return


def is_model_call(facts: TrainingFacts, call: ast.Call) -> bool:
    """Return whether ``call`` runs the model's forward."""
    return bool(dotted_name(call.func)) and facts.is_model(call.func)


def functional_name(call: ast.Call) -> str:
    """Return the name of the called function or method."""
    return last_name(call.func)


def computed_names(facts: TrainingFacts) -> set[str]:
    """Return the names of what the training step computes with the model."""
    stmts = [node for node in facts.in_training if isinstance(node, ast.Assign)]
    names: set[str] = set()
    for _ in stmts:
        before = len(names)
        for stmt in stmts:
            parts = [*ast.walk(stmt.value)]
            if any(isinstance(each, ast.Call) and is_model_call(facts, each) for each in parts) or any(
                isinstance(each, ast.Name) and each.id in names for each in parts
            ):
                names |= {each.id for target in stmt.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        if len(names) == before:
            break
    return names
