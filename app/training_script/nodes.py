"""Traversal of syntax trees in the order of ``ast.walk``, without contexts and operators."""

import ast
from collections.abc import Iterable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

WITHOUT_NODES = {
    *("ctx", "op", "ops", "id", "attr", "arg", "n", "s", "kind", "type_comment", "level", "module", "asname"),
    *("simple", "is_async", "conversion", "name", "rest", "kwd_attrs", "type_ignores"),
}


WITH_GAPS = {"keys", "kw_defaults"}  # lists of nodes in which some may be missing


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each kind of node that may hold nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        without = kind in (ast.Constant, ast.Global, ast.Nonlocal, ast.MatchSingleton)
        named = {"name"} if kind.__name__ == "TypeAlias" else set[str]()  # of which the name is a node
        fields = () if without else tuple(name for name in kind._fields if name in named or name not in WITHOUT_NODES)
        self[kind] = fields
        return fields


Placed = TypeVar("Placed", bound=ast.stmt | ast.expr)
FIELDS = _Fields()
Kind = TypeVar("Kind", bound=ast.AST)
_NODES: "WeakKeyDictionary[ast.AST, list[ast.AST]]" = WeakKeyDictionary()
_OF_KINDS: "WeakKeyDictionary[ast.AST, dict[tuple[type[ast.AST], ...], list[Any]]]" = WeakKeyDictionary()
_BY_PLACE: "WeakKeyDictionary[ast.AST, dict[tuple[int, int], list[ast.stmt | ast.expr]]]" = WeakKeyDictionary()


class CompletedCall(ast.Call):
    """A call as the function gets it to which ``written`` passes its arguments on."""

    written: ast.Call


CompletedCall.__name__ = ast.Call.__name__  # by which visitors tell nodes apart


def as_written(call: ast.Call) -> ast.Call:
    """Return a call as the text has it."""
    while isinstance(call, CompletedCall):
        call = call.written
    return call


def child_nodes(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below ``node``."""
    found: list[ast.AST] = []
    for name in FIELDS[type(node)]:
        value = getattr(node, name, None)
        if type(value) is list:
            found += value if name not in WITH_GAPS else [each for each in value if each is not None]
        elif value is not None:
            found.append(value)
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """Return a node and every node below it, outer ones first."""
    return _with_nodes_below([node])


def _with_nodes_below(found: list[ast.AST]) -> list[ast.AST]:
    """Return nodes and every node below them: as ``child_nodes`` for each, without a call for each."""
    for node in found:  # which grows meanwhile
        for name in FIELDS[type(node)]:
            value = getattr(node, name, None)
            if type(value) is list:
                found += value if name not in WITH_GAPS else [each for each in value if each is not None]
            elif value is not None:
                found.append(value)
    return found


def nodes_below(tree: ast.AST) -> list[ast.AST]:
    """Return every node below ``tree``, outer ones first. They are kept as long as the tree itself."""
    known = _NODES.get(tree)
    if known is None:
        known = _NODES[tree] = _with_nodes_below(child_nodes(tree))
    return known


def nodes_of_kinds(tree: ast.AST, *kinds: type[Kind]) -> list[Kind]:
    """Return the nodes below ``tree`` of some kinds, outer ones first. They are kept as long as the tree itself."""
    of_kinds = _OF_KINDS.get(tree)
    if of_kinds is None:
        of_kinds = _OF_KINDS[tree] = {}
    known = of_kinds.get(kinds)
    if known is None:
        below = nodes_below(tree)
        wanted = {kind for kind in set(map(type, below)) if issubclass(kind, kinds)}
        known = of_kinds[kinds] = [node for node in below if type(node) in wanted]
    return known


def unused_name(tree: ast.AST, wanted: Iterable[str]) -> str:
    """Return the first of the names that no variable and no parameter below ``tree`` has, or ""."""
    taken = {node.id for node in nodes_of_kinds(tree, ast.Name)} | {node.arg for node in nodes_of_kinds(tree, ast.arg)}
    return next((name for name in wanted if name not in taken), "")


def parents_below(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """Return the parent of every node below ``tree``."""
    parents: dict[ast.AST, ast.AST] = {}
    for node in (tree, *nodes_below(tree)):
        for name in FIELDS[type(node)]:  # as ``child_nodes``, without a call for each node
            value = getattr(node, name, None)
            if type(value) is list:
                for each in value if name not in WITH_GAPS else filter(None, value):
                    parents[each] = node
            elif value is not None:
                parents[value] = node
    return parents


def node_at(tree: ast.AST, line: int, column: int, *kinds: type[Placed]) -> Placed | None:
    """Return the node of one of these kinds that begins at a place (both count from 1), the outermost one."""
    found = _nodes_by_place(tree).get((line, column - 1), [])
    return next((node for node in found if isinstance(node, kinds)), None)


def _nodes_by_place(tree: ast.AST) -> dict[tuple[int, int], list[ast.stmt | ast.expr]]:
    """Return the statements and expressions below ``tree`` by where they begin, outer ones first."""
    known = _BY_PLACE.get(tree)
    if known is None:
        known = _BY_PLACE[tree] = {}
        for node in nodes_of_kinds(tree, ast.stmt, ast.expr):
            known.setdefault((node.lineno, node.col_offset), []).append(node)
    return known


def try_with_handler(tree: ast.AST, line: int) -> ast.Try | None:
    """Return the ``try`` statement of which a handler begins in a line."""
    found = nodes_of_kinds(tree, ast.Try)
    return next((node for node in found if any(each.lineno == line for each in node.handlers)), None)
