"""DW415: tensors that change while calls which only began still use them, with the handles kept in a list."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ...training_script.collectives import collective_name
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below, walk
from ...training_script.syntax import FUNCTIONS, call_argument, dotted_name, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node
from .reused_buffers import changes

ORDERS = ("reversed", "list", "tuple")  # what only puts a list into an order


class Kept(NamedTuple):
    """A call that only began. ``tensor``: the name of what it uses; ``held``: the list with its handle.

    ``place``: that of the tensor, or of the object with it, in an element of the list, None if it is not there.
    ``rest``: the attributes that lead from there to the tensor.
    """

    call: ast.Call
    tensor: str
    held: str
    place: int | None
    rest: str


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the changes of such tensors in loops before something waits for the handles."""
    if not script.mentions("async_op") or not run.distributed:
        return
    for node in nodes_below(script.source.tree):
        kept = _kept(script, node) if isinstance(node, ast.Call) else None
        for loop, name in _loops(script, kept) if kept else ():
            change = _change(loop, name)
            if kept and change is not None and not _waits_before(script, loop, change, kept):
                yield violation_at_node(
                    change,
                    f"`{name}` is changed while {collective_name(kept.call, script.names)} (line "
                    f"{kept.call.lineno}) may still use it: something waits for its end only later",
                    0.85,
                    related=[RelatedPlace(path=script.source.path, line=kept.call.lineno, message="begun here")],
                )


def _kept(script: Script, call: ast.Call) -> Kept | None:
    """Return a collective whose handle is put into a list."""
    begins = call_argument(call, "async_op")
    tensor = dotted_name(call.args[0]) if call.args else ""
    if not (isinstance(begins, ast.Constant) and begins.value is True and tensor):
        return None
    if not collective_name(call, script.names):
        return None
    stmt = script.source.statement_of(call)
    handle = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is call else None
    block = script.source.block_of(stmt)
    for each in block[block.index(stmt) :]:
        match each:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=held, attr="append"), args=[element])):
                parts = element.elts if isinstance(element, ast.Tuple) else [element]
                names = [dotted_name(part) for part in parts]
                if not (call in parts or (isinstance(handle, ast.Name) and handle.id in names)):
                    continue
                place = next((at for at, name in enumerate(names) if name and _leads_to(name, tensor)), None)
                rest = tensor.removeprefix(names[place]) if place is not None else ""
                return Kept(call, tensor, dotted_name(held), place, rest)
            case _:
                pass
    return None


def _leads_to(name: str, tensor: str) -> bool:
    return tensor == name or tensor.startswith(f"{name}.")


def _loops(script: Script, kept: Kept) -> Iterator[tuple[ast.For, str]]:
    """Yield the loops that get the tensors again, with the name of the tensor in each."""
    launch = script.source.parents.get(script.source.statement_of(kept.call))
    launched = launch if isinstance(launch, ast.For) else None
    root, _, rest = kept.tensor.partition(".")
    for loop in nodes_below(script.source.tree):
        if not isinstance(loop, ast.For) or not _shares_names(script, kept, loop):
            continue
        over = _over(loop)
        if over == kept.held and kept.place is not None:
            parts = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
            if kept.place < len(parts) and isinstance(part := parts[kept.place], ast.Name):
                yield loop, part.id + kept.rest
        elif launched and dotted_name(launched.target) == root and loop.lineno > launched.lineno:
            again = ast.unparse(loop.iter) == ast.unparse(launched.iter) and isinstance(loop.target, ast.Name)
            if again and script.source.block_of(loop) is script.source.block_of(launched):
                yield loop, ".".join(filter(None, (dotted_name(loop.target), rest)))


def _shares_names(script: Script, kept: Kept, loop: ast.For) -> bool:
    """Return whether a name means the same at a loop as where a call begins: an attribute, or one of its function."""
    functions = [script.names.enclosing_function(each) for each in (kept.call, loop)]
    return functions[0] is functions[1] or kept.held.startswith("self.")


def _over(loop: ast.For) -> str:
    over = loop.iter
    while isinstance(over, ast.Call) and last_name(over.func) in ORDERS and over.args:
        over = over.args[0]
    return dotted_name(over)


def _change(loop: ast.For, name: str) -> ast.expr | ast.stmt | None:
    """Return the first change of a tensor in a round, if nothing waits before it."""
    for stmt in loop.body:
        if _waits(stmt):
            return None
        found = next((node for node in walk(stmt) if changes(node, name)), None)
        if isinstance(found, ast.expr | ast.stmt):
            return found
    return None


def _waits(stmt: ast.AST) -> bool:
    return any(map(_is_wait, walk(stmt)))


def _waits_before(script: Script, loop: ast.For, change: ast.expr | ast.stmt, kept: Kept) -> bool:
    """Return whether something waits between the beginning of a call and a loop, or nothing does behind the change."""
    function = script.names.enclosing_function(loop)
    block = function.body if isinstance(function, FUNCTIONS) else script.source.tree.body
    nodes = [node for stmt in block for node in walk(stmt) if isinstance(node, ast.Attribute) and _is_wait(node)]
    same = function is script.names.enclosing_function(kept.call)
    first = kept.call.lineno if same and kept.call.lineno < loop.lineno else 0
    before = any(first < node.lineno < loop.lineno for node in nodes)
    return before or not any(node.lineno > change.lineno for node in nodes)


def _is_wait(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("wait", "synchronize")
