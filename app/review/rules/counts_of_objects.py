"""DW476: objects that add up sums of all ranks, and count the data of one rank, by which another method divides."""

import ast
from collections.abc import Iterator

from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.syntax import (
    FUNCTIONS,
    Function,
    called_function_name,
    contains_line,
    dotted_name,
    last_name,
)
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node
from .own_counts import EXCHANGES, is_count


def check(script: Script) -> list[Violation]:
    """Return the counts of one rank in a method that adds to other attributes what the ranks have reduced."""
    if not (script.mentions("reduce") and script.mentions("+=")) or not script.has_ranks:
        return []
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    exchanges = [call.lineno for call in calls if EXCHANGES.fullmatch(called_function_name(call))]
    classes = [
        each
        for each in nodes_of_kinds(script.source.tree, ast.ClassDef)
        if any(contains_line(each, line) for line in exchanges)
    ]
    return [violation for each in classes for violation in _in_class(script, each)]


def _in_class(script: Script, cls: ast.ClassDef) -> Iterator[Violation]:
    methods = [each for each in cls.body if isinstance(each, FUNCTIONS)]
    reducing = {each.name for each in methods if any(True for _ in _exchanges(each))}
    if not reducing:
        return
    divisors = {
        dotted_name(node.right) for node in walk(cls) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    }
    for method in methods if divisors else ():
        added = [(_attribute(node.target), node) for node in walk(method) if isinstance(node, ast.AugAssign)]
        counts = [(name, node) for name, node in added if name and name in divisors and is_count(node.value)]
        if not counts:
            continue
        reduced = _reduced(method, reducing)
        shared = [node for name, node in added if name and _is_reduced(node.value, reduced, reducing)]
        for name, node in counts if shared else ():
            if _is_reduced(node.value, reduced, reducing):
                continue
            others: list[ast.AST] = [each for each in methods if each is not method and each.name in reducing]
            if any(_mentions(each, name) for each in (*others, *_exchanges(method))):
                continue
            yield violation_at_node(
                node,
                f"`{name}` counts the data of this rank, and line {shared[0].lineno} adds what all have summed up: "
                "a mean that is divided by it is as many times larger as there are ranks",
                0.75,
                related=[RelatedPlace(path=script.source.path, line=shared[0].lineno, message="of all ranks")],
            )


def _exchanges(method: Function) -> Iterator[ast.Call]:
    """Yield the calls that exchange something with other ranks."""
    calls = (node for node in walk(method) if isinstance(node, ast.Call))
    yield from (call for call in calls if EXCHANGES.fullmatch(called_function_name(call)))


def _reduced(method: Function, reducing: set[str]) -> set[str]:
    """Return the names that hold what the ranks have reduced, or what a method returns that reduces something."""
    found = {each.id for call in _exchanges(method) for each in walk(call) if isinstance(each, ast.Name)}
    for node in walk(method):
        if isinstance(node, ast.Assign) and _calls(node.value, reducing):
            found |= {each.id for target in node.targets for each in walk(target) if isinstance(each, ast.Name)}
    return found - {"self"}


def _is_reduced(value: ast.expr, names: set[str], reducing: set[str]) -> bool:
    return _calls(value, reducing) or any(isinstance(each, ast.Name) and each.id in names for each in walk(value))


def _calls(value: ast.expr, methods: set[str]) -> bool:
    """Return whether an expression is a call of one of these methods of the object."""
    is_own = isinstance(value, ast.Call) and dotted_name(value.func).startswith("self.")
    return isinstance(value, ast.Call) and is_own and last_name(value.func) in methods


def _attribute(target: ast.expr) -> str:
    """Return the attribute of the object that a statement changes, or of which it changes an element."""
    name = dotted_name(target.value if isinstance(target, ast.Subscript) else target)
    return name if name.startswith("self.") else ""


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Attribute) and dotted_name(each) == name for each in walk(node))
