"""DW415: tensors that are read or changed while a call that only began still reads or writes them."""

import ast
from typing import NamedTuple

from ...training_script.nodes import walk
from ...training_script.syntax import LOOPS, dotted_name
from ..rule_context import Script

WRITES = {"all_reduce", "broadcast", "reduce", "irecv", "all_gather_into_tensor"}  # into their first argument
READS_OF_SHAPE = {"shape", "dtype", "device", "numel", "size", "ndim"}


class EarlyUse(NamedTuple):
    """A use of a tensor before the call is done. ``what``: read or changed."""

    at: ast.expr
    name: str
    what: str


def early_use(script: Script, call: ast.Call, name: str) -> EarlyUse | None:
    """Return the first use between the beginning of a call and the wait for its end, in the same block.

    What a call writes must not be read, and what it reads must not be changed.
    """
    stmt = script.source.statement_of(call)
    tensor = dotted_name(call.args[0]) if call.args else ""
    if not tensor or not isinstance(call.args[0], ast.Name | ast.Attribute):
        return None
    block = script.source.block_of(stmt)
    later = block[block.index(stmt) + 1 :]
    match stmt:
        case ast.Assign(targets=[ast.Name(id=handle)], value=ast.Call() as made) if made is call:
            end = next((place for place, each in enumerate(later) if _waits(each, handle)), None)
            kept = next((held for each in later if (held := _keeper(each, handle))), "")
            if end is None and kept and _is_waited_for_later(script, stmt, kept):
                end = next((place for place, each in enumerate(later) if _mentions(each, "wait")), len(later))
            elif end is None or any(_names(each, handle) for each in later[:end]):
                return None
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=kept, attr="append"))) if _is_waited_for_later(
            script, stmt, dotted_name(kept)
        ):
            end = next((place for place, each in enumerate(later) if _mentions(each, "wait")), len(later))
        case _:
            return None
    for each in later[:end]:
        if isinstance(each, (*LOOPS, ast.If, ast.Try, ast.With)) or _binds(each, tensor):
            return None
        found = next((node for node in walk(each) if _uses(script, node, tensor, reads=name in WRITES)), None)
        if isinstance(found, ast.expr):
            return EarlyUse(found, tensor, "read" if name in WRITES else "changed")
    return None


def _keeper(stmt: ast.stmt, handle: str) -> str:
    """Return the list into which a statement puts a handle, an empty string if it does something else."""
    match stmt:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=kept, attr="append"), args=[ast.Name(id=name)])):
            return dotted_name(kept) if name == handle else ""
        case _:
            return ""


def _is_waited_for_later(script: Script, stmt: ast.stmt, kept: str) -> bool:
    """Return whether a statement is in a loop, behind which something waits for all handles that are kept."""
    loop = script.source.parents.get(stmt)
    if not kept or not isinstance(loop, LOOPS):
        return False
    block = script.source.block_of(loop)
    behind = block[block.index(loop) + 1 :]
    return any(
        isinstance(each, ast.For) and dotted_name(each.iter) == kept and _mentions(each, "wait") for each in behind
    )


def _mentions(stmt: ast.stmt, method: str) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == method for node in walk(stmt))


def _waits(stmt: ast.stmt, handle: str) -> bool:
    """Return whether a statement waits for the end of a call itself, and not under a condition."""
    match stmt:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="wait"))):
            return name == handle
        case _:
            return False


def _names(stmt: ast.stmt, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in walk(stmt))


def _binds(stmt: ast.stmt, name: str) -> bool:
    """Return whether a statement gives a name to another tensor, or to another object with the tensor."""
    bound = stmt.targets if isinstance(stmt, ast.Assign) else []
    names = {name, name.partition(".")[0]}
    return any(
        isinstance(node, ast.Name | ast.Attribute) and dotted_name(node) in names
        for target in bound
        for node in walk(target)
    )


def _uses(script: Script, node: ast.AST, tensor: str, *, reads: bool) -> bool:
    """Return whether an expression reads what a tensor holds, or changes it in place."""
    if not isinstance(node, ast.Name | ast.Attribute) or dotted_name(node) != tensor:
        return False
    parent = script.source.parents.get(node)
    match parent:
        case ast.AugAssign(target=target) if target is node:
            return True
        case ast.Attribute(attr=attr):
            called = isinstance(script.source.parents.get(parent), ast.Call)
            changes = called and attr.endswith("_") and not attr.endswith("__")
            return changes or (reads and attr not in READS_OF_SHAPE)
        case ast.BinOp() | ast.Compare():
            return reads
        case _:
            return False
