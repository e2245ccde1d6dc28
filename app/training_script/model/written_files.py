"""The names of files that a module writes: whether they exist may change while ranks ask for them."""

import ast
from collections.abc import Iterator

from ..nodes import nodes_below
from ..syntax import last_name

# The place of the path among the arguments; -1: the object of the method.
WRITERS = {
    "save": 1,
    "save_file": 1,
    "dump": 1,
    "replace": 1,
    "rename": 1,
    "copyfile": 1,
    "copy": 1,
    "copy2": 1,
    "move": 1,
    "savez": 0,
    "remove": 0,
    "open": 0,
    "write_text": -1,
    "write_bytes": -1,
    "touch": -1,
    "unlink": -1,
    "symlink_to": -1,
}
MODES = ("w", "a", "x")


def written_names(tree: ast.Module) -> frozenset[str]:
    """Return the constant names in the paths that the calls of a module write or delete."""
    constants = {
        target.id: stmt.value.value
        for stmt in tree.body
        if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str)
        for target in stmt.targets
        if isinstance(target, ast.Name)
    }
    found: set[str] = set()
    for call in nodes_below(tree):
        if isinstance(call, ast.Call) and (place := WRITERS.get(last_name(call.func))) is not None:
            for part in _path(call, place):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    found.add(part.value)
                elif isinstance(part, ast.Name) and part.id in constants:
                    found.add(constants[part.id])
    return frozenset(name for name in found if "." in name.strip("./"))


def _path(call: ast.Call, place: int) -> Iterator[ast.AST]:
    """Yield the nodes of the path that a call writes to."""
    if place < 0:
        yield from ast.walk(call.func)
    elif last_name(call.func) != "open":
        yield from (node for each in call.args[place : place + 1] for node in ast.walk(each))
    elif any(isinstance(each, ast.Constant) and str(each.value).startswith(MODES) for each in call.args[1:2]):
        yield from ast.walk(call.args[0])
