"""DW443: mappings that ranks fill in another order, and go through with collectives."""

import ast
from collections.abc import Iterator, Sequence

from ...training_script.collectives import collective_name
from ...training_script.model.distinct_names import distinct_names
from ...training_script.model.keys import BY_RANK, LOCAL
from ...training_script.model.members import PAIR
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at, violation_at_node
from .unequal_parts import PREFIX, SENT, sent

JOINS = {"torch.stack", "torch.cat", "torch.tensor"}
VIEWS = ("items", "keys", "values")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the mappings with the same names in another order, by the data or by the sides of a branch by the rank."""
    if run.distributed:
        yield from _joined(script, run)
    if run.distributed and run.function is None:
        yield from _by_branches(script)


def _joined(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives with a tensor of all values of a mapping, which the data of each rank bring into order."""
    for reach, fact, given in sent(run, *SENT):
        held = given.key.args[1] if given.key.op == "call" and given.key.args[0] in JOINS else given.key
        held = held.args[1] if held.op == "built" else held
        names = [distinct_names(held, rank) or [] for rank in PAIR]
        if names[0] != names[1] and sorted(map(repr, names[0])) == sorted(map(repr, names[1])):
            own, other = next(pair for pair in zip(*names, strict=True) if pair[0] != pair[1])
            message = f"the values come in the order in which the data of each rank bring their names: {own!r} of one "
            message += f"rank meets {other!r} of another in {fact.name.removeprefix(PREFIX)}"
            yield from violation_at(script, reach, message, 0.85)


def _by_branches(script: Script) -> Iterator[Violation]:
    """Yield the branches by the rank whose sides give a mapping the same names in another order."""
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
