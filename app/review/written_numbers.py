"""Numbers that a program writes out as settings: in mappings, classes, names of modules and defaults of options."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from ..training_script.model.keys import Key, parts
from ..training_script.model.lengths import number
from ..training_script.model.members import PAIR
from ..training_script.nodes import nodes_below
from .rule_context import Script
from .types import RelatedPlace

OF_RANKS = {"rank", "world", "devices"}  # values that follow from how the program is started


def written_number(key: Key) -> int | None:
    """Return the whole number that a value is however the program is started, None if it is not written out."""
    if any(part.op in OF_RANKS for part in parts(key)):
        return None
    return number(key, PAIR[0])


def option_default(script: Script, value: ast.expr | None) -> int | None:
    """Return the default of the option of the command line that an expression reads, if nothing else sets it."""
    if not isinstance(value, ast.Attribute):
        return None
    found: list[ast.Constant] = []
    for tree in _trees(script).values():
        for node in nodes_below(tree):
            match node:
                case ast.Attribute(attr=name, ctx=ast.Store()) if name == value.attr:
                    return None
                case ast.Call(func=ast.Attribute(attr="add_argument")):
                    found += [each for name, each in _settings_of(node) if name == value.attr]
                case _:
                    pass
    return int(str(found[0].value)) if len(found) == 1 else None


def _trees(script: Script) -> dict[Path, ast.Module]:
    own = Path(script.source.path)
    others = ((path, script.evaluated.tree_of(path)) for path in script.evaluated.modules if path != own)
    return {own: script.source.tree, **{path: tree for path, tree in others if tree}}


def where_written(script: Script, value: ast.expr | None, path: str) -> list[RelatedPlace]:
    """Return the places where settings are written out whose names are in an expression of a file.

    These may also be in what this file assigns to the names in the expression.
    """
    trees = _trees(script)
    if value is None or (tree := trees.get(Path(path))) is None:
        return []
    wanted = {name for each in _expressions(tree, value) for name in _names(each)}
    return [
        RelatedPlace(path=str(path), line=node.lineno, message="it is written out here")
        for path, tree in trees.items()
        for name, node in _settings(tree)
        if name in wanted
    ]


def _expressions(tree: ast.Module, value: ast.expr) -> Iterator[ast.expr]:
    yield value
    read = value.id if isinstance(value, ast.Name) else ""
    for node in nodes_below(tree) if read else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=held) if name == read:
                yield held
            case _:
                pass


def _names(value: ast.expr) -> Iterator[str]:
    """Yield the names by which settings are read in an expression."""
    for node in ast.walk(value):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str() as name):
                yield name
            case _:
                pass


def _settings(tree: ast.Module) -> Iterator[tuple[str, ast.Constant]]:
    """Yield the names of settings with the numbers that they are given."""
    for node in nodes_below(tree):
        yield from _settings_of(node)


def _settings_of(node: ast.AST) -> Iterator[tuple[str, ast.Constant]]:
    match node:
        case ast.Dict(keys=keys, values=values):
            named = [(each.value, value) for each, value in zip(keys, values, strict=True) if _is_text(each)]
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
        ):
            named = [(name, value)]
        case ast.Call(args=[ast.Constant(value=str() as flag), *_], keywords=keywords):
            name = flag.lstrip("-").replace("-", "_")
            named = [(name, each.value) for each in keywords if each.arg == "default" and flag.startswith("-")]
        case ast.keyword(arg=str() as name, value=value):
            named = [(name, value)]
        case _:
            return
    for name, value in named:
        if isinstance(value, ast.Constant) and type(value.value) is int:
            yield str(name), value


def _is_text(node: ast.expr | None) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
