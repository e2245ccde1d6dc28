"""The dotted names that code reads and sets."""

import ast
from collections.abc import Iterator

from ...training_script.syntax import FUNCTIONS, dotted_name, nodes_of_body


def names_read(node: ast.AST) -> set[str]:
    """Return the longest dotted names that are read in ``node``; ``x += 1`` reads ``x``."""
    found: set[str] = set()
    inner: set[ast.AST] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.AugAssign) and isinstance(child.target, ast.Name):
            found.add(child.target.id)
        if isinstance(child, (ast.Name, ast.Attribute)) and child not in inner:
            path = dotted_name(child)
            if isinstance(child, ast.Attribute):
                inner |= set(ast.walk(child.value)) if path else set()
            if path and not (isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)):
                found.add(path)
    return found


def asked_for(test: ast.expr) -> Iterator[ast.expr]:
    """Yield the objects of which a condition asks whether they are there."""
    match test:
        case ast.Compare(left=ast.Name() | ast.Attribute() as left, comparators=[ast.Constant(value=None)]):
            yield left
        case ast.BoolOp(values=values):
            for value in values:
                yield from asked_for(value)
        case ast.Name() | ast.Attribute():
            yield test
        case _:
            pass


def names_set(node: ast.AST) -> set[str]:
    """Return the dotted names that ``node`` sets."""
    found: set[str] = set()
    for child in (node, *nodes_of_body(node)):
        if isinstance(child, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(child.ctx, (ast.Store, ast.Del)):
            found.add(dotted_name(child.value if isinstance(child, ast.Subscript) else child))
        elif isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            found.add(child.name)
        elif isinstance(child, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in child.names}
        elif isinstance(child, (ast.MatchAs, ast.MatchStar)) and child.name:
            found.add(child.name)
    return found - {""}


def reads_any(expr: ast.expr, names: set[str]) -> bool:
    """Return whether an expression has one of some names."""
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(expr))


def touches(path: str, names: set[str]) -> bool:
    """Return whether a dotted name is one of some names, a part of one, or has one as a part."""
    return any(path == name or path.startswith(name + ".") or name.startswith(path + ".") for name in names)
