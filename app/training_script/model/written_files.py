"""The names of files that a module writes: whether they exist may change while ranks ask for them."""

import ast
from collections.abc import Iterable, Iterator, Mapping

from ..nodes import nodes_below, walk
from ..syntax import FUNCTIONS, last_name

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
    below = nodes_below(tree)
    if not (writes := [each for each in below if isinstance(each, ast.Call) and last_name(each.func) in WRITERS]):
        return frozenset()
    at_top = _texts_bound(tree.body)
    found = _names_in(writes, at_top)
    for scope in (node for node in below if isinstance(node, FUNCTIONS)):
        last = scope.end_lineno or scope.lineno
        inside = [call for call in writes if scope.lineno <= call.lineno <= last]
        if inside:
            found |= _names_in(inside, {**at_top, **_texts_bound(walk(scope))})
    return frozenset(name for name in found if "." in name.strip("./"))


def _names_in(writes: Iterable[ast.Call], texts: Mapping[str, set[str]]) -> set[str]:
    """Return the constants in the paths that calls write, and those in what names hold there."""
    found: set[str] = set()
    for call in writes:
        for part in _path(call, WRITERS[last_name(call.func)]):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                found.add(part.value)
            elif isinstance(part, ast.Name):
                found |= texts.get(part.id, set())
    return found


def _texts_bound(stmts: Iterable[ast.AST]) -> dict[str, set[str]]:
    """Return the names that assignments bind, with the constant texts in what they are bound to."""
    found: dict[str, set[str]] = {}
    for stmt in stmts:
        match stmt:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                texts = (node.value for node in ast.walk(value) if isinstance(node, ast.Constant))
                found.setdefault(name, set()).update(each for each in texts if isinstance(each, str))
            case _:
                pass
    return found


def _path(call: ast.Call, place: int) -> Iterator[ast.AST]:
    """Yield the nodes of the path that a call writes to."""
    if place < 0:
        yield from ast.walk(call.func)
    elif last_name(call.func) != "open":
        yield from (node for each in call.args[place : place + 1] for node in ast.walk(each))
    elif any(isinstance(each, ast.Constant) and str(each.value).startswith(MODES) for each in call.args[1:2]):
        yield from ast.walk(call.args[0])
