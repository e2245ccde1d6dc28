"""DW269: writers that every rank makes or uses, in classes whose other methods write with them on one rank only."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.library_effects import EXPERIMENTS, WRITERS
from ...training_script.model.rank_mentions import may_ask_for_ranks
from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.rank_names import one_rank_decorator
from ...training_script.syntax import FUNCTIONS, Function, called_function_name, dotted_name, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

MAKES = {*WRITERS, *EXPERIMENTS}
WRITES = re.compile(r"add_\w+|log(?:_\w+)?|write\w*|save\w*")
DECORATED = re.compile(r"^[ \t\f]*@[\w.]*(?:main|master|primary|rank|first)", re.MULTILINE)


def check(script: Script) -> list[Violation]:
    """Return the writers that are made, and the writes that are done, without the decorator of the other methods."""
    if not script.mentions(DECORATED):
        return []
    classes = nodes_of_kinds(script.source.tree, ast.ClassDef)
    return [violation for each in classes for violation in _in_class(script, each)]


def _in_class(script: Script, cls: ast.ClassDef) -> Iterator[Violation]:
    methods = [each for each in cls.body if isinstance(each, FUNCTIONS)]
    of_one = [each for each in methods if any(one_rank_decorator(last_name(by)) for by in each.decorator_list)]
    writes = {name: call for each in of_one for name, call in _writes(each)}
    if not writes:
        return
    made = {name: stmt for each in methods if each.name == "__init__" for name, stmt in _made(script, each)}
    for name in writes.keys() & made.keys():
        line = writes[name].lineno
        related = [RelatedPlace(path=script.source.path, line=line, message="on one rank")]
        if not any(each.name == "__init__" for each in of_one) and not _is_decided(script, made[name]):
            yield violation_at_node(
                made[name],
                f"every rank makes this, with files or a run of its own, though the class writes with `{name}` on one "
                f"rank only (line {line})",
                0.7,
                related=related,
            )
        for method in methods:
            if method in of_one or method.name == "__init__" or _is_called_by(of_one, method):
                continue
            for other, call in _writes(method):
                if other == name and not _is_decided(script, call):
                    yield violation_at_node(
                        call,
                        f"every rank writes this with `{name}`: line {line} does so on one rank only",
                        0.65,
                        related=related,
                    )


def _writes(method: Function) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls by which a method writes with an attribute of its object."""
    for node in walk(method):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute() as held, attr=attr)) if WRITES.fullmatch(attr):
                if (name := dotted_name(held)).startswith("self."):
                    yield name, node
            case _:
                pass


def _made(script: Script, constructor: Function) -> Iterator[tuple[str, ast.Assign]]:
    for node in walk(constructor):
        match node:
            case ast.Assign(targets=[ast.Attribute() as target], value=value):
                calls = (each for each in walk(value) if isinstance(each, ast.Call))
                if any(script.names.qualified(call.func) in MAKES for call in calls):
                    yield dotted_name(target), node
            case _:
                pass


def _is_called_by(of_one: list[Function], method: Function) -> bool:
    """Return whether a method that runs on one rank calls another one."""
    calls = (node for each in of_one for node in walk(each) if isinstance(node, ast.Call))
    return any(called_function_name(call) == method.name for call in calls)


def _is_decided(script: Script, node: ast.AST) -> bool:
    """Return whether a condition around a node, or a return before it, may be about ranks."""
    if any(isinstance(each, ast.IfExp) and may_ask_for_ranks(each.test) for each in walk(node)):
        return True
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.ClassDef):
        if isinstance(at, ast.If | ast.IfExp) and may_ask_for_ranks(at.test):
            return True
        if isinstance(at, ast.stmt):
            block = script.source.block_of(at)
            before = block[: block.index(at)] if at in block else []
            if any(isinstance(each, ast.If) and may_ask_for_ranks(each.test) for each in before):
                return True
        at = script.source.parents.get(at)
    return False
