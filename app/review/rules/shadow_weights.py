"""DW256: weights that an object keeps, which some ranks change and all ranks give to their models."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, dotted_name, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node
from .own_changes import IN_PLACE

SHARES = re.compile(r"broadcast|all_?reduce|scatter|sync|gather")
OF_WEIGHTS = re.compile(r"\b(?:state_dict|named_parameters|parameters|buffers|named_buffers)\(")


class _Keeper(NamedTuple):
    """The methods of a class that change the weights it keeps, and those that give them to a model."""

    changes: frozenset[str]
    gives: frozenset[str]


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls by which only some ranks change such weights, where all ranks take them later."""
    if run.function is not None or not run.distributed or not script.mentions(OF_WEIGHTS):
        return
    nodes = [*nodes_below(script.source.tree)]
    keepers = [found for node in nodes if isinstance(node, ast.ClassDef) and (found := _keeper(node))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    for keeper in keepers:
        for call in calls:
            held = _owner(call)
            if not held or last_name(call) not in keeper.changes or not _is_of_some(script, call):
                continue
            same = (each for each in calls if last_name(each) in keeper.gives)
            used = next(
                (each for each in same if _owner(each) == held and each is not call and not _is_of_some(script, each)),
                None,
            )
            if used is not None:
                yield violation_at_node(
                    call,
                    f"only some ranks change the weights that `{held}` keeps, and all give them to their models (line "
                    f"{used.lineno}): the others take those that it began with",
                    0.8,
                    related=[
                        RelatedPlace(path=script.source.path, line=used.lineno, message="given to the model here")
                    ],
                )


def _keeper(cls: ast.ClassDef) -> _Keeper | None:
    """Return the methods of a class that keeps weights; None if it communicates or keeps none."""
    text = ast.unparse(cls)
    if SHARES.search(text) or not OF_WEIGHTS.search(text):
        return None
    changes, gives = set[str](), set[str]()
    for method in (each for each in cls.body if isinstance(each, FUNCTIONS) and each.name != "__init__"):
        kept = _elements(method)
        if any(_changes(node, kept) for node in ast.walk(method)):
            changes.add(method.name)
        if any(_gives(node, kept) for node in ast.walk(method)):
            gives.add(method.name)
    changes -= gives
    return _Keeper(frozenset(changes), frozenset(gives)) if changes and gives else None


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _elements(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that loops of a method give to elements of what the object keeps."""
    found = set[str]()
    for loop in (node for node in ast.walk(method) if isinstance(node, ast.For)):
        match loop.target, loop.iter:
            case ast.Tuple(elts=names), ast.Call(func=ast.Name(id="zip"), args=over):
                pairs = list(zip(names, over, strict=False))
            case ast.Tuple(elts=[*_, name]), over:
                pairs = [(name, over)]
            case name, over:
                pairs = [(name, over)]
        found |= {name.id for name, each in pairs if isinstance(name, ast.Name) and _of_own(each, set())}
    return found


def _of_own(node: ast.AST, elements: set[str]) -> bool:
    """Return whether an expression is an attribute of the object, or an element of one."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call) and not _is_own(node):
        node = node.func if isinstance(node, ast.Call) else node.value
    return _is_own(node) or (isinstance(node, ast.Name) and node.id in elements)


def _changes(node: ast.AST, elements: set[str]) -> bool:
    """Return whether something changes elements of what the object keeps."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Subscript() | ast.Name() | ast.Call() as target, attr=name)) if (
            name in IN_PLACE
        ):
            return _of_own(target, elements)
        case ast.Assign(targets=[ast.Subscript(value=target)]):
            return _is_own(target)
        case ast.AugAssign(target=ast.Subscript(value=target)):
            return _is_own(target)
        case _:
            return False


def _gives(node: ast.AST, elements: set[str]) -> bool:
    """Return whether something puts what the object keeps into a model."""
    match node:
        case ast.Call(func=ast.Attribute(value=target, attr="load_state_dict"), args=[given, *_]):
            return _is_own(given) and not _of_own(target, elements)
        case (
            ast.Call(func=ast.Attribute(value=target, attr="copy_"), args=[given, *_])
            | ast.Assign(targets=[ast.Attribute(value=target, attr="data")], value=ast.expr() as given)
        ):
            return not _is_own(given) and _of_own(given, elements) and not _of_own(target, elements)
        case _:
            return False


def _owner(call: ast.Call) -> str:
    return dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _is_of_some(script: Script, node: ast.AST) -> bool:
    """Return whether a condition on the rank is around a node, in its function."""
    at: ast.AST | None = node
    while at is not None and not isinstance(at, FUNCTIONS):
        if isinstance(at, ast.If) and script.depends_on_rank(at.test):
            return True
        at = script.source.parents.get(at)
    return False
