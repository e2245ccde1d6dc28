"""Sums that an object keeps of the batches of a loader: what a method adds that is called in the loop over it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, last_name
from ..rule_context import Script

# What a method asks for that leaves out what a sampler repeats.
LEAVES_OUT = re.compile(r"rank|world|replicas|length|total|size|limit", re.IGNORECASE)

SELECTS = (ast.Slice, ast.If, ast.IfExp, ast.Break, ast.Continue)  # what may leave out some in the loop


def is_metered(script: Script, total: Key, loaders: set[Key]) -> bool:
    """Return whether a total holds what a method adds that a loop over one of these loaders calls, and nothing trains.

    The method makes it of a batch, or the loop gives it what to add. Neither may leave out samples by their number.
    """
    added = [part for part in parts(total) if part.op == "at" and part.differs_by & LOCAL and len(part.args) == 3]
    loops = list(_measuring_loops(script, loaders)) if added else []
    called = {name for _, names in loops for name in names}
    for part in added if called else ():
        function = _function_at(script, *part.args[:2])
        if function is not None and function.name in called and not _leaves_out(function):
            return True
    sums = [part.args[2] for part in parts(total) if part.op == "binary" and part.args[0] == "Add"] if called else []
    given = [part for part in added if any(part in parts(each) for each in sums)]
    return any(_gives(script, loop, names, part) for part in given for loop, names in loops)


def _measuring_loops(script: Script, loaders: set[Key]) -> Iterator[tuple[ast.For, set[str]]]:
    """Yield the loops over loaders without a backward pass, each with the names of what it calls."""
    for loop in nodes_of_kinds(script.source.tree, ast.For):
        key = script.evaluated.value(loop.iter)
        if key is None or loaders.isdisjoint(parts(key)):
            continue
        calls = {last_name(node.func) for stmt in loop.body for node in ast.walk(stmt) if isinstance(node, ast.Call)}
        if not calls & {"backward", "step"}:
            yield loop, calls


def _gives(script: Script, loop: ast.For, called: set[str], part: Key) -> bool:
    """Return whether a loop that takes all samples of each batch computes a part of a total, and calls what adds it."""
    path, line, _ = part.args
    inside = path == script.source.path and loop.lineno < line <= (loop.end_lineno or 0)
    if not inside or any(isinstance(each, SELECTS) for stmt in loop.body for each in ast.walk(stmt)):
        return False
    methods = [each for each in nodes_of_kinds(script.source.tree, *FUNCTIONS) if each.name in called]
    adding = [each for each in methods if any(map(_adds_to_attribute, nodes_of_kinds(each, ast.AugAssign)))]
    return bool(adding) and not any(map(_leaves_out, methods))


def _adds_to_attribute(stmt: ast.AugAssign) -> bool:
    return isinstance(stmt.op, ast.Add) and isinstance(stmt.target, ast.Attribute)


def _leaves_out(function: ast.AST) -> bool:
    names = {each for node in ast.walk(function) if (each := _name(node))}
    return any(map(LEAVES_OUT.search, names))


def _function_at(script: Script, path: str, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the innermost function around a line of a file of the program."""
    tree = script.source.tree if path == script.source.path else script.evaluated.tree_of(Path(path))
    around = [
        node
        for node in (nodes_below(tree) if tree else ())
        if isinstance(node, FUNCTIONS) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(around, key=lambda each: each.lineno, default=None)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
