"""DW201: DDP around a model that is not on its device yet.

Two forms: the model is moved after the wrap (``DDP(net); net.to(device)``), or ``device_ids`` is given and the model,
created in this script, is never moved. Silent if the model may have been moved already or created on its device.
"""

import ast
import re

from ...training_script.edits import Edit
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import call_argument, dotted_name
from ..model_device import Placement, is_device_move, model_placement, node_position
from ..rule_context import Patch, Script, Violation, no_patch

FIX = "move-before-wrap"
LATER = "the model moves earlier than before: the code in between finds it on its device"
INSERTED = "the patch takes the device from device_ids"
DDP = re.compile(r"torch\.nn\.parallel\.(?:distributed\.)?DistributedDataParallel")


def check(script: Script) -> list[Violation]:
    """Return every DDP wrap in the script that comes before the move to the device."""
    if not script.mentions("DistributedDataParallel"):
        return []
    found = [_judge(script, node) for node in nodes_of_kinds(script.source.tree, ast.Call)]
    return [finding for finding in found if finding]


def _judge(script: Script, wrap: ast.Call) -> Violation | None:
    model = call_argument(wrap, "module", 0)
    if model is None or not DDP.fullmatch(script.names.qualified(wrap.func)):
        return None
    place = model_placement(script, model, node_position(wrap))
    if place == "moved":
        return None
    listed = call_argument(wrap, "device_ids", 1)
    if move := _move_after(script, wrap):
        message = f"DDP wraps the model here, and it goes to its device only at line {move.lineno}"
        return _found(script, wrap, f"{message} (`{ast.unparse(move)}`)", place, _move_up(script, wrap, model, move))
    if place == "cpu" and isinstance(listed, (ast.List, ast.Tuple)) and len(listed.elts) == 1:
        device = script.source.one_line(listed.elts[0])
        message = f"DDP wraps a model that is still on the CPU, with device_ids=[{device}]"
        edit = script.source.replace(model, f"{script.source.code(model)}.to({device})")
        return _found(script, wrap, message, place, Patch(id=FIX, safety="unsafe", why_unsafe=INSERTED, edits=[edit]))
    return None


def _found(script: Script, wrap: ast.Call, message: str, place: Placement, patch: Patch) -> Violation:
    return Violation(
        line=wrap.lineno,
        column_bytes=wrap.col_offset + 1,
        end_line=wrap.end_lineno or wrap.lineno,
        message=message,
        confidence=0.95 if place == "cpu" else 0.7,
        severity=None if place == "cpu" else "warning",
        patch=lambda: patch,
    )


def _move_after(script: Script, wrap: ast.Call) -> ast.Call | None:
    """Return the later move of the wrapped model, around the wrap itself or as a statement of its own, or None."""
    parents = script.source.parents
    above = parents.get(wrap)
    around = parents.get(above) if isinstance(above, ast.Attribute) else None
    if isinstance(around, ast.Call) and is_device_move(around):
        return around
    stmt = above
    if not (isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and stmt.value is wrap):
        return None
    name, own = dotted_name(stmt.targets[0]), script.names.enclosing_function(wrap)
    later = [
        node
        for node in nodes_of_kinds(own or script.source.tree, ast.Call)
        if name and isinstance(node.func, ast.Attribute) and dotted_name(node.func.value) == name
        if node_position(node) > node_position(wrap) and script.names.enclosing_function(node) is own
        if is_device_move(node) and _statement(script, node)
    ]
    return min(later, key=node_position, default=None)


def _statement(script: Script, move: ast.Call) -> ast.Expr | ast.Assign | None:
    """Return the statement of ``X.to(device)`` or ``X = X.to(device)``, or None."""
    stmt = script.source.parents.get(move)
    if isinstance(stmt, ast.Expr):
        return stmt
    assert isinstance(move.func, ast.Attribute)
    if isinstance(stmt, ast.Assign) and [dotted_name(target) for target in stmt.targets] == [
        dotted_name(move.func.value)
    ]:
        return stmt
    return None


def _move_up(script: Script, wrap: ast.Call, model: ast.expr, move: ast.Call) -> Patch:
    """Return the patch that moves the model first, with the text of the late move."""
    source = script.source
    assert isinstance(move.func, ast.Attribute)
    tail = source.text[source.end(move.func.value) : source.end(move)]
    if move.func.value is wrap:
        start, code = source.start(wrap), source.code(wrap)
        end = source.end(model) - start
        return Patch(id=FIX, safety="safe", edits=[source.replace(move, code[:end] + tail + code[end:])])
    stmt = _statement(script, move)
    assert stmt
    if not isinstance(model, (ast.Name, ast.Attribute, ast.Call)):
        return no_patch(FIX, "the model is an expression: assign it to a name, move it, then wrap it")
    block, holder = _common_block(script, wrap, stmt)
    if not source.alone(stmt) or (holder and not source.alone(holder)):
        return no_patch(FIX, "the move or the wrap shares its line with other statements")
    if not holder:
        return no_patch(FIX, f"line {stmt.lineno} is in another block: move the model above the wrap by hand")
    between = block[block.index(holder) : block.index(stmt)]
    needed = {n.id for n in ast.walk(move) if isinstance(n, ast.Name)} - {
        dotted_name(move.func.value).partition(".")[0]
    }
    bound = {n.id for s in between for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if needed & bound:
        return no_patch(FIX, f"`{min(needed & bound)}` is set only after the wrap: set it, and move the model, above")
    if _made_in(script, model, wrap, holder):
        return no_patch(FIX, "the model is created in the block of the wrap: move it there, before the wrap")
    if not dotted_name(model):
        edits = [Edit(source.end(model), source.end(model), tail), _without(script, stmt)]
        adjacent = len(between) == 1
        safety = "safe" if adjacent else "unsafe"
        return Patch(id=FIX, safety=safety, why_unsafe="" if adjacent else LATER, edits=edits)
    code = f"{source.code(model)}{tail}"
    line = f"{source.code(model)} = {code}" if isinstance(stmt, ast.Assign) else code
    first = source.first_line_with_comments(holder, holder.lineno - 1)
    edits = [source.insert_line(first, line, source.indent(holder.lineno)), _without(script, stmt)]
    return Patch(id=FIX, safety="safe", edits=edits)


def _made_in(script: Script, model: ast.expr, wrap: ast.Call, holder: ast.stmt) -> bool:
    """Return whether the model is bound, before the wrap, only in the statement that holds the wrap."""
    inside = set(ast.walk(holder))
    return any(
        binding.at in inside and binding.value and node_position(binding.value) < node_position(wrap)
        for binding in script.names.bindings(model)
        if not (binding.value and wrap in ast.walk(binding.value))
    )


def _common_block(script: Script, wrap: ast.Call, stmt: ast.stmt) -> tuple[list[ast.stmt], ast.stmt | None]:
    """Return the block of ``stmt`` and its earlier statement that holds the wrap, or None."""
    block = script.source.block_of(stmt)
    above = block[: block.index(stmt)] if block else []
    return block, next((s for s in above if wrap in ast.walk(s)), None)


def _without(script: Script, stmt: ast.stmt) -> Edit:
    """Return the edit that removes a statement. Its block is not empty then: it also holds the wrap."""
    return script.source.remove_lines(stmt.lineno, stmt.end_lineno or stmt.lineno)
