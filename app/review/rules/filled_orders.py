"""DW443: mappings that ranks fill in another order, and go through with collectives."""

import ast
from collections.abc import Iterator, Sequence

from ...training_script.collectives import collective_name
from ...training_script.model.keys import BY_RANK, LOCAL
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

VIEWS = ("items", "keys", "values")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the branches by the rank whose sides give a mapping the same names in another order."""
    if not run.distributed or run.function is not None:
        return
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.If) or not node.orelse:
            continue
        orders = [dict(_orders(side)) for side in (node.body, node.orelse)]
        for name in orders[0].keys() & orders[1].keys():
            first, second = orders[0][name], orders[1][name]
            if first == second or sorted(first) != sorted(second) or not _is_by_rank(script, node.test):
                continue
            loop = _loop(script, node, name)
            if loop is not None:
                yield violation_at_node(
                    node,
                    f"the sides of this branch fill `{name}` in another order: in the loop of line {loop.lineno} "
                    f"`{first[0]}` of one rank meets `{second[0]}` of another",
                    0.8,
                    related=[RelatedPlace(path=script.source.path, line=loop.lineno, message="the ranks meet here")],
                )


def _orders(side: Sequence[ast.stmt]) -> Iterator[tuple[str, list[str]]]:
    """Yield the mappings that statements fill, each with its names in the order in which they come."""
    found: dict[str, list[str]] = {}
    for stmt in side:
        match stmt:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=held), slice=ast.Constant(value=str() as name))]):
                if name not in found.setdefault(held, []):
                    found[held].append(name)
            case ast.Assign(targets=[ast.Name(id=held)], value=ast.Dict(keys=names)):
                found[held] = [str(each.value) for each in names if isinstance(each, ast.Constant)]
            case _:
                pass
    yield from found.items()


def _is_by_rank(script: Script, test: ast.expr) -> bool:
    key = script.evaluated.value(test)
    return key is not None and key.differs_by & (BY_RANK | LOCAL) == BY_RANK


def _loop(script: Script, branch: ast.If, name: str) -> ast.For | None:
    """Return the loop with collectives over a mapping, in its function or in one that gets what this one returns."""
    around = script.names.enclosing_function(branch) or script.source.tree
    returned = any(
        isinstance(node, ast.Return) and isinstance(node.value, ast.Name) and node.value.id == name
        for node in ast.walk(around)
    )
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.For) or not _communicates(script, node):
            continue
        held = _mapping(node.iter)
        within = script.names.enclosing_function(node) or script.source.tree
        if held is None or (within is around and (held != name or node.lineno < branch.lineno)):
            continue
        if within is around or (
            returned and isinstance(around, FUNCTIONS) and _gets(script, within, held, around.name)
        ):
            return node
    return None


def _mapping(iterated: ast.expr) -> str | None:
    """Return the name of the mapping that a loop goes over in its own order."""
    match iterated:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=view), args=[]) if view in VIEWS:
            return name
        case ast.Name(id=name):
            return name
        case _:
            return None


def _communicates(script: Script, loop: ast.For) -> bool:
    calls = (node for stmt in loop.body for node in ast.walk(stmt) if isinstance(node, ast.Call))
    return any(collective_name(call, script.names) for call in calls)


def _gets(script: Script, function: ast.AST, name: str, made_by: str) -> bool:
    """Return whether a function has what another one returns under a name, or as an argument of that name."""
    if not isinstance(function, FUNCTIONS):
        return any(_is_call(each, made_by) for each in _bound(script.source.tree, name))
    if any(_is_call(each, made_by) for each in _bound(function, name)):
        return True
    places = [each.arg for each in function.args.args]
    for call in nodes_of_kinds(script.source.tree, ast.Call) if name in places else ():
        if not _is_call(call, function.name):
            continue
        place = places.index(name) - (places[:1] == ["self"])
        given = call.args[place] if place < len(call.args) else None
        made = [given, *(script.names.origins(given) if given is not None else [])]
        if any(_is_call(each, made_by) for each in made):
            return True
    return False


def _bound(tree: ast.AST, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=bound)], value=value) if bound == name:
                yield value
            case _:
                pass


def _is_call(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == name
