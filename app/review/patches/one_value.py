"""The patches by which all ranks pass the value of rank 0, and one rank opens a store."""

import ast

from ...training_script.model.noted_calls import INIT
from ...training_script.model.reach import ALL, Reach, Run
from ...training_script.nodes import node_at, nodes_below
from ..rule_context import Patch, Script, no_patch
from .agree_on_condition import may_end_apart
from .common_order import SIMPLE
from .os_import import os_module
from .torch_names import distributed_module, free_name, tensor_device

VALUE, OPENER, NAME = "value-of-rank-0", "store-of-rank-0", "name-of-rank-0"
SENT_NAMES = ("name_of_all", "sent_name", "common_name")
SEND = "make the name on rank 0, and send it to all ranks with broadcast_object_list"
NAMES = ("agreed", "agreed_value", "value_of_all")
BY_HAND = "pass the same value on all ranks, such as one that rank 0 has sent with broadcast_object_list"


def value_of_first(script: Script, reach: Reach, call: ast.Call, given: ast.expr | None) -> Patch:
    """Return the patch by which all ranks pass what rank 0 passes."""
    source, stmt = script.source, script.source.statement_of(call)
    module, name = distributed_module(script, stmt), free_name(script, NAMES)
    sent = given is not None and bool(module and name) and tensor_device(script, stmt, "torch") is not None
    if not sent or given is None or reach.ranks != ALL or reach.loops or may_end_apart(script, stmt):
        return no_patch(VALUE, BY_HAND)
    if not isinstance(stmt, SIMPLE) or not source.alone(stmt):
        return no_patch(VALUE, BY_HAND)
    indent = source.indent(stmt.lineno)
    lines = [
        f"{name} = [{source.one_line(given)}]",
        f"if {module}.is_initialized():",
        f"{source.one_level(indent)}{module}.broadcast_object_list({name}, src=0)",
    ]
    return Patch(
        id=VALUE,
        safety="unsafe",
        why_unsafe="all ranks do what rank 0 passes, and wait for each other to learn it",
        edits=[
            *(source.insert_line(stmt.lineno, line, indent) for line in lines),
            source.replace(given, f"{name}[0]"),
        ],
    )


def name_of_first(script: Script, run: Run, line: int) -> Patch:
    """Return the patch by which all ranks take the name that rank 0 has made for itself."""
    source, name = script.source, free_name(script, SENT_NAMES)
    stmt = next(
        (each for each in nodes_below(source.tree) if isinstance(each, ast.Assign) and each.lineno == line), None
    )
    target = stmt.targets[0] if stmt and len(stmt.targets) == 1 else None
    if stmt is None or not isinstance(target, ast.Name) or not name or not _has_group(script, run, stmt):
        return no_patch(NAME, SEND)
    last, indent = stmt.end_lineno or stmt.lineno, source.indent(stmt.lineno)
    module = distributed_module(script, stmt)
    if not module or not source.alone(stmt) or last >= len(source.starts):
        return no_patch(NAME, SEND)
    if tensor_device(script, stmt, "torch") is None:
        return no_patch(NAME, SEND)
    lines = [
        f"{name} = [{target.id}]",
        f"if {module}.is_initialized():",
        f"{source.one_level(indent)}{module}.broadcast_object_list({name}, src=0)",
        f"{target.id} = {name}[0]",
    ]
    edits = [source.insert_line(last + 1, each, indent) for each in lines]
    return Patch(id=NAME, safety="unsafe", why_unsafe="ranks wait for each other to learn it", edits=edits)


def _has_group(script: Script, run: Run, stmt: ast.stmt) -> bool:
    """Return whether a statement comes behind the process group, in the function where all ranks have made it."""
    around, path = script.names.enclosing_function(stmt), script.source.path
    if script.source.parents.get(stmt) is not (around or script.source.tree):
        return False
    for reach, fact in run.of(INIT):
        for site in (*reach.calls, fact.site):
            call = node_at(script.source.tree, site.line, site.column, ast.Call) if site.path == path else None
            here = call is not None and script.names.enclosing_function(call) is around
            if here and site.line < stmt.lineno and reach.ranks == ALL:
                return True
    return False


def opened_by_first(script: Script, given: ast.expr | None) -> Patch:
    """Return the patch by which rank 0 alone opens the port of a store."""
    if not isinstance(given, ast.Constant):
        return no_patch(OPENER, "pass is_master=True on rank 0 only")
    module, imported = os_module(script)
    edits = [script.source.replace(given, f'int({module}.environ.get("RANK", "0")) == 0')]
    return Patch(
        id=OPENER,
        safety="unsafe",
        why_unsafe="a launcher that sets no RANK is not torchrun: every process opens the port then, as before",
        edits=[*edits, *([imported] if imported else [])],
    )
