"""DW415: tensors that are sent in the background and overwritten for the next message before anything waits."""

import ast
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import walk
from ...training_script.syntax import LOOPS, dotted_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import at_node, violation_at

SENDS = ("torch.distributed.isend",)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the changes of a buffer that each round sends, if its handle is only kept for later."""
    for reach, fact in run.of(*SENDS):
        name = dotted_name(fact.node.args[0]) if fact.node.args else ""
        if not script.is_here(reach) or not name or not reach.loops:
            continue
        round_ = _round(script, fact.node, name)
        if round_ is None or not _is_kept(script, fact.node):
            continue
        nodes = [node for stmt in round_ for node in walk(stmt)]
        if any(isinstance(node, ast.Attribute) and node.attr in ("wait", "wait_all", "is_completed") for node in nodes):
            continue
        change = next((node for node in nodes if changes(node, name)), None)
        if isinstance(change, ast.expr | ast.stmt):
            yield from violation_at(
                script,
                at_node(script, reach, change) if isinstance(change, ast.expr) else reach,
                f"`{name}` is overwritten while its last message (line {fact.site.line}) may still be sent: nothing "
                "waits for that before",
                0.85,
                related=[RelatedPlace(path=fact.site.path, line=fact.site.line, message="sent here")],
            )


def _round(script: Script, call: ast.Call, name: str) -> list[ast.stmt] | None:
    """Return the statements of the loop, or of the method, around a call, if they do not replace the buffer."""
    at = script.source.parents.get(call)
    while at is not None and not isinstance(at, (*LOOPS, ast.FunctionDef)):
        at = script.source.parents.get(at)
    if not isinstance(at, ast.For | ast.While | ast.FunctionDef) or (
        isinstance(at, ast.FunctionDef) and not name.startswith("self.")
    ):
        return None
    made = (node for stmt in at.body for node in walk(stmt) if isinstance(node, ast.Assign))
    again = any(dotted_name(target) == name for node in made for target in node.targets)
    return None if again else at.body


def _is_kept(script: Script, call: ast.Call) -> bool:
    """Return whether the handle of a call is put into a collection."""
    parent = script.source.parents.get(call)
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "append"


def changes(node: ast.AST, name: str) -> bool:
    """Return whether something changes a tensor in place."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=method)):
            return dotted_name(owner) == name and method.endswith("_") and not method.endswith("__")
        case ast.Subscript(value=owner, ctx=ast.Store()):
            return dotted_name(owner) == name
        case ast.AugAssign(target=target):
            return dotted_name(target) == name
        case _:
            return False
