"""DW415: memory that the next message or collective gets before anything waits for the one that still uses it."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.amounts import NEW_TENSORS
from ...training_script.model.keys import Key
from ...training_script.model.reach import Run, argument
from ...training_script.nodes import walk
from ...training_script.syntax import LOOPS, dotted_name, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import at_node, violation_at

SENDS = ("torch.distributed.isend",)
BEGINS = tuple(f"torch.distributed.{name}" for name in ("all_reduce", "broadcast", "reduce", "irecv"))
MAY_WAIT = re.compile(r"wait|sync|flush|drain|finish|complete", re.IGNORECASE)
WAITS = ("wait", "wait_all", "is_completed", "synchronize")
NEW = NEW_TENSORS | {f"torch.{name}" for name in ("empty_like", "zeros_like")}


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
        if any(isinstance(node, ast.Attribute) and node.attr in WAITS for node in nodes):
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


def check_pending(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls that begin in each round of a loop in the same memory, before anything waits for the last one."""
    for reach, fact in run.of(*BEGINS):
        begins, given = fact.named.get("async_op"), argument(fact, 0, "tensor")
        pending = fact.name.endswith("irecv") or (begins is not None and begins.key is run.keys.true)
        made = _memory(given.key) if given else None
        if not pending or made is None or not script.is_here(reach) or not reach.several:
            continue
        loop = script.source.parents.get(fact.node)
        while loop is not None and not isinstance(loop, (*LOOPS, ast.FunctionDef)):
            loop = script.source.parents.get(loop)
        if not isinstance(loop, LOOPS) or _makes(script, loop, made):
            continue
        nodes = [node for stmt in loop.body for node in walk(stmt)]
        if not any(map(_may_wait, nodes)) and _is_kept_in(script, nodes, fact.node):
            yield from violation_at(
                script,
                reach,
                f"{fact.name.rpartition('.')[2]} begins in each round of this loop in the same memory, and nothing "
                "waits for that of the round before: the last round overwrites what the others send and receive",
                0.85,
            )


def _memory(key: Key) -> Key | None:
    """Return the new tensor whose first elements a value is, or that it is itself."""
    if key.accumulated is not None:
        key = key.accumulated.first  # what a round changes in place
    if key.op == "item" and key.args[1].op == "slice":
        first, _, step = key.args[1].args
        if not (first.is_constant and first.value in (None, 0) and step.is_constant):
            return None
        key = key.args[0]
    return key if key.op == "call" and key.args[0] in NEW else None


def _makes(script: Script, loop: ast.AST, made: Key) -> bool:
    """Return whether a loop makes the tensor itself: another one in each round, or calls what may do so."""
    calls = [node for node in walk(loop) if isinstance(node, ast.Call)]
    if any(script.evaluated.value(node) is made for node in calls):
        return True
    written = [node for node in walk(script.source.tree) if isinstance(node, ast.Call)]
    places = [node for node in written if script.evaluated.value(node) is made]
    in_constructor = (script.names.enclosing_function(node) for node in places)
    here = script.names.enclosing_function(loop)
    return not places or any(each is not here and getattr(each, "name", "") != "__init__" for each in in_constructor)


def _may_wait(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and bool(MAY_WAIT.search(last_name(node)))


def _is_kept_in(script: Script, nodes: list[ast.AST], call: ast.Call) -> bool:
    """Return whether the handle of a call gets into a collection in a round."""
    match script.source.parents.get(call):
        case ast.Assign(targets=[ast.Name(id=name)]):
            handle = name
        case _:
            handle = ""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "append"
        and any(each is call or (isinstance(each, ast.Name) and each.id == handle) for each in ast.walk(node))
        for node in nodes
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
