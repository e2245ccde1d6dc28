"""Sums that an object keeps of the batches of a loader: what a method adds that is called in the loop over it."""

import ast
import re
from pathlib import Path

from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, last_name
from ..rule_context import Script

# What a method asks for that leaves out what a sampler repeats.
LEAVES_OUT = re.compile(r"rank|world|replicas|length|total|size|limit", re.IGNORECASE)


def is_metered(script: Script, total: Key, loaders: set[Key]) -> bool:
    """Return whether a total holds what a method adds that a loop over one of these loaders calls, and nothing trains.

    No method counts that may leave out samples by their number.
    """
    added = [part for part in parts(total) if part.op == "at" and part.differs_by & LOCAL and len(part.args) == 3]
    called = _called_in_rounds(script, loaders) if added else set[str]()
    for part in added if called else ():
        function = _function_at(script, *part.args[:2])
        names = {each for node in ast.walk(function) if (each := _name(node))} if function else set[str]()
        if function is not None and function.name in called and not any(map(LEAVES_OUT.search, names)):
            return True
    return False


def _called_in_rounds(script: Script, loaders: set[Key]) -> set[str]:
    """Return the names of the methods that loops over loaders call without a backward pass."""
    found: set[str] = set()
    for loop in nodes_below(script.source.tree):
        key = script.evaluated.value(loop.iter) if isinstance(loop, ast.For) else None
        if key is None or not isinstance(loop, ast.For) or loaders.isdisjoint(parts(key)):
            continue
        calls = {last_name(node.func) for stmt in loop.body for node in ast.walk(stmt) if isinstance(node, ast.Call)}
        found |= calls if not calls & {"backward", "step"} else set()
    return found


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
