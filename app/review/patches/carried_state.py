"""State that code which moves to all ranks takes over from before, and code that changes it.

A name is taken over if the code reads it before it binds it; also process-wide state: seeds, grad mode, defaults.
"""

import ast
import re
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from ...training_script.name_resolution import Names
from ...training_script.syntax import nodes_of_body
from ..rank_bindings import is_under_rank_condition
from ..rule_context import Script
from ..side_effects import called_name, is_side_effect
from .hoist_edits import BodyPiece, NoPatch
from .names_in_code import names_read, names_set, touches

# Functions without an object that set what later calls in the process depend on; the device is that of the rank.
SETS_PROCESS = re.compile(r"(?:\w+_)?seed\w*|set_(?!device)\w+|use_deterministic_algorithms")
PROCESS = "the state of the process"
# Methods that change their object and nothing else.
SETS_OBJECT = re.compile(
    r"train|eval|reset|clear|append|extend|update|add|load_state_dict|(?:set|enable|disable|reset|zero)_\w+|[a-z]\w*_"
)
BINDING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
SIMPLE = (*BINDING, ast.Expr)


def names_taken_over(pieces: Sequence[BodyPiece], bound: frozenset[str] = frozenset()) -> set[str]:
    """Return the dotted names that the moved parts of pieces read before they surely bind them."""
    return set(_taken_over(pieces, set(bound)))


def _taken_over(pieces: Sequence[BodyPiece], bound: set[str]) -> Iterator[str]:
    for piece in pieces:
        if piece.moved:
            yield from _of_stmt(piece.stmt, piece.inner or None, bound)


def _of_stmt(stmt: ast.stmt, inner: Sequence[BodyPiece] | None, bound: set[str]) -> Iterator[str]:
    """Yield the names that a statement takes over, and add to ``bound`` those that are surely bound behind it."""
    match stmt:
        case ast.For(target=target, iter=items):
            yield from _free(items, bound)
            yield from _taken_over(inner or _whole(stmt.body), bound | names_set(target))
            yield from _taken_over(_whole(stmt.orelse), bound.copy())
        case ast.With(items=entered):
            for item in entered:
                yield from _free(item.context_expr, bound)
                bound |= names_set(item.optional_vars) if item.optional_vars else set()
            yield from _taken_over(inner or _whole(stmt.body), bound)
        case ast.If(test=test):
            yield from _free(test, bound)
            then, other = bound.copy(), bound.copy()
            yield from _taken_over(inner or _whole(stmt.body), then)
            yield from _taken_over(_whole(stmt.orelse), other)
            bound |= then & other
        case _:
            yield from _free(stmt, bound)
            bound |= names_set(stmt) if isinstance(stmt, BINDING) else set()


def _free(node: ast.AST, bound: set[str]) -> Iterator[str]:
    of_comprehensions = {
        name for each in ast.walk(node) if isinstance(each, ast.comprehension) for name in names_set(each.target)
    }
    for name in names_read(node):
        if name.partition(".")[0] not in bound | of_comprehensions:
            yield name


def _whole(stmts: Sequence[ast.stmt]) -> list[BodyPiece]:
    return [BodyPiece(stmt, True, []) for stmt in stmts]


def changed_behind(script: Script, pieces: Sequence[BodyPiece], collectives: Container[ast.AST]) -> set[ast.stmt]:
    """Return the statements that stay, and set again what the moved ones set, or take over from the round before."""
    taken = names_taken_over(pieces)
    parts = _made_from(script, taken, pieces)
    by_moved = _changed_by_moved(script.names, pieces, collectives)
    last = max((stmt.lineno for stmt in _moved(pieces)), default=0)
    behind: set[ast.stmt] = set()
    for stmt in _kept(pieces):
        changes = _changes(script.names, stmt)
        state = taken | ({PROCESS} if PROCESS in by_moved or stmt.lineno < last else set())
        for change in changes:
            if change.is_known and touches(change.name, state if change.binds else state | parts):
                behind.add(stmt)
        for change in changes:
            if not change.is_known and change.name in by_moved and touches(change.name, taken):
                raise NoPatch(
                    f"line {change.line} may change `{change.name}` back, which then changes on every rank: "
                    "move both by hand"
                )
    return behind


def _made_from(script: Script, taken: Container[str], pieces: Sequence[BodyPiece]) -> set[str]:
    """Return the names that the objects in names taken over are made from: a loader holds its sampler."""
    read = (node for stmt in _moved(pieces) for node in ast.walk(stmt) if isinstance(node, ast.Name))
    heads = (piece.stmt.iter for piece in pieces if piece.inner and isinstance(piece.stmt, ast.For))
    names = [node for node in (*read, *heads) if isinstance(node, ast.Name) and node.id in taken]
    values = [binding.value for name in names for binding in script.names.bindings(name)]
    return {part for value in values if isinstance(value, ast.Call) for part in names_read(value)}


def refuse_unbound(script: Script, guard: ast.If, pieces: Sequence[BodyPiece]) -> None:
    """Refuse if a name that the moved statements take over is not surely bound on every rank."""
    taken = {name.partition(".")[0] for name in names_taken_over(pieces)}
    inside = set(ast.walk(guard))
    for stmt in guard.body:
        for name in ast.walk(stmt):
            if isinstance(name, ast.Name) and name.id in taken and _only_on_some(script, guard, name, inside):
                raise NoPatch(f"`{name.id}` exists only on some ranks")


def _only_on_some(script: Script, guard: ast.If, name: ast.Name, inside: Container[ast.AST]) -> bool:
    """Return whether all that binds a name before a condition may run on some ranks only."""
    scope = script.names.scope_of[name]
    if scope is not script.names.scope_of[guard.test]:
        return False  # of a comprehension or a lambda
    found = script.names.lookup(name.id, scope)
    if not found:
        return False
    if found[0] is not scope.bindings.get(name.id):
        return all(is_under_rank_condition(script, each.at) for each in found[0])
    before = [each for each in found[0] if each.at not in inside and _line(each.at) <= guard.lineno]
    by_rank = [each for each in before if is_under_rank_condition(script, each.at)]
    if before and not by_rank:
        return False
    sure = [each for each in before if each not in by_rank and script.source.parents[each.at] in _around(script, guard)]
    return not sure or all(isinstance(each.value, ast.Constant) and each.value.value is None for each in sure)


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _around(script: Script, node: ast.AST) -> set[ast.AST]:
    found: set[ast.AST] = set()
    parent = script.source.parents.get(node)
    while parent is not None:
        found.add(parent)
        parent = script.source.parents.get(parent)
    return found


def refuse_state_of_some(
    script: Script, guard: ast.If, pieces: Sequence[BodyPiece], collectives: Container[ast.AST]
) -> None:
    """Refuse if the moved statements change what another condition on the rank changes on some ranks only."""
    taken = names_taken_over(pieces) | {PROCESS}
    changed = {name for name in _changed_by_moved(script.names, pieces, collectives) if touches(name, taken)}
    inside = set(ast.walk(guard))
    function = script.names.enclosing_function(guard) or script.source.tree
    for node in nodes_of_body(function):
        if not isinstance(node, SIMPLE) or node in inside or not is_under_rank_condition(script, node):
            continue
        for change in _changes(script.names, node):
            if change.name in changed:
                raise NoPatch(
                    f"line {change.line} changes `{change.name}` on some ranks only, and every rank would need it"
                )


class Change(NamedTuple):
    """A change of a name, or of the object that it holds; ``is_known``: it changes that, and nothing else."""

    name: str
    line: int
    is_known: bool = True
    binds: bool = False


def _changes(names: Names, stmt: ast.stmt) -> list[Change]:
    """Return what a statement changes: names, objects by a method called for its effect, and ``PROCESS``.

    The target of a loop is a part of what the loop iterates over: what changes the one changes the other.
    """
    found = [Change(name, stmt.lineno, binds=True) for name in names_set(stmt)]
    nodes = (stmt, *nodes_of_body(stmt))
    parts = {
        name: names_read(node.iter) for node in nodes if isinstance(node, ast.For) for name in names_set(node.target)
    }
    for node in nodes:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or is_side_effect(node.value):
            continue
        owner, method = called_name(node.value)
        if isinstance(node.value.func, ast.Attribute) and not names.qualified(node.value.func):
            known = bool(SETS_OBJECT.fullmatch(method))
            owners = {owner, *(each.rpartition(".")[0] or each for each in parts.get(owner, ()))} - {""}
            found += [Change(each, node.lineno, known) for each in owners]
        elif SETS_PROCESS.fullmatch(method):
            found.append(Change(PROCESS, node.lineno))
    return found


def _changed_by_moved(names: Names, pieces: Sequence[BodyPiece], collectives: Container[ast.AST]) -> set[str]:
    stmts = [s for s in _moved(pieces) if not (isinstance(s, ast.Expr) and s.value in collectives)]
    return {change.name for stmt in stmts for change in _changes(names, stmt)}


def _kept(pieces: Sequence[BodyPiece]) -> Iterator[ast.stmt]:
    """Yield the statements that stay under the condition."""
    for piece in pieces:
        if not piece.moved:
            yield piece.stmt
        yield from _kept(piece.inner)


def _moved(pieces: Sequence[BodyPiece]) -> Iterator[ast.stmt]:
    """Yield the statements that move as a whole."""
    for piece in pieces:
        if piece.moved and not piece.inner:
            yield piece.stmt
        yield from _moved(piece.inner)
