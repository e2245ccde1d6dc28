"""The patches by which all ranks pass the value of rank 0, and one rank opens a store."""

import ast

from ...training_script.model.reach import ALL, Reach
from ..rule_context import Patch, Script, no_patch
from .agree_on_condition import may_end_apart
from .common_order import SIMPLE
from .os_import import os_module
from .torch_names import distributed_module, free_name, tensor_device

VALUE, OPENER = "value-of-rank-0", "store-of-rank-0"
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
