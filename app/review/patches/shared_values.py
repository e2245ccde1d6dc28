"""The patches by which ranks wait for a file of another, or get the number or the model that one of them has."""

import ast

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, LOCAL, Key, parts
from ...training_script.model.reach import ALL, Reach
from ...training_script.model.sequences import Site
from ...training_script.nodes import node_at
from ...training_script.syntax import call_argument, dotted_name
from ..rule_context import Patch, Script, no_patch
from .agree_on_condition import OF_FILES, reduction_at
from .torch_names import distributed_module, free_name

MEAN, SEND, WAIT = "average-over-ranks", "broadcast-after-load", "wait-for-writer"
MEANS = ("mean", "mean_of_ranks", "averaged")
FILES = {*OF_FILES, "listdir", "scandir", "iterdir", "glob", "rglob", "iglob"}
PARTS = ("part", "tensor", "held")


def average_argument(script: Script, call: ast.Call, name: str, place: int) -> Patch:
    """Return the patch that passes the mean over all ranks instead of the number of one."""
    source, stmt = script.source, script.source.statement_of(call)
    given, reduction = call_argument(call, name, place), reduction_at(script, stmt, MEANS)
    if isinstance(reduction, str):
        return no_patch(MEAN, reduction)
    if given is None or not isinstance(stmt, ast.Expr | ast.Assign) or not source.alone(stmt):
        return no_patch(MEAN, "reduce the number over all ranks before it is passed")
    mean, module, indent = reduction.name, reduction.distributed, source.indent(stmt.lineno)
    step = source.one_level(indent)
    lines = [
        f"{mean} = {reduction.torch}.tensor(float({source.one_line(given)}){reduction.device})",
        f"if {module}.is_initialized():",
        f"{step}{module}.all_reduce({mean})",
        f"{step}{mean} /= {module}.get_world_size()",
    ]
    return Patch(
        id=MEAN,
        safety="unsafe",
        why_unsafe="all ranks go by the mean of their numbers, and wait for each other there",
        edits=[
            *(source.insert_line(stmt.lineno, line, indent) for line in lines),
            source.replace(given, f"{mean}.item()"),
        ],
    )


def broadcast_after_load(script: Script, reach: Reach, fact: Noted) -> Patch:
    """Return the patch that sends the model to all ranks behind the condition under which rank 0 loads it."""
    why = "load it before the wrap, or on every rank"
    source, module, part = script.source, distributed_module(script, fact.node), free_name(script, PARTS)
    guard = _guard(script, reach)
    model = _model(script, guard, reach, fact) if guard else ""
    last = (guard.end_lineno or 0) if guard else 0
    if guard is None or not model or not module or not part or reach.ranks != 1 or last >= len(source.starts):
        return no_patch(SEND, why)
    indent = source.indent(guard.lineno)
    step = source.one_level(indent)
    lines = [
        f"if {module}.is_initialized():",
        f"{step}for {part} in [*{model}.parameters(), *{model}.buffers()]:",
        f"{step}{step}{module}.broadcast({part}.data, src=0)",
    ]
    reason = "all ranks wait there for the model of rank 0"
    edits = [source.insert_line(last + 1, line, indent) for line in lines]
    return Patch(id=SEND, safety="unsafe", why_unsafe=reason, edits=edits)


def wait_for_writer(script: Script, reach: Reach) -> Patch:
    """Return the patch that lets all ranks wait in front of the statement that reads a file."""
    site, source = script.place(reach), script.source
    found = (node for node in source.parents if isinstance(node, ast.expr) and site and _is_at(node, site))
    stmt = next((source.statement_of(node) for node in found), None)
    module = distributed_module(script, stmt) if stmt else ""
    apart = any(loop.amount.differs_by & (BY_RANK | LOCAL) or _asks_for_files(loop.amount) for loop in reach.loops)
    apart = apart or any(_asks_for_files(each.test) for each in reach.conditions)  # ranks may see other files there
    if stmt is None or not module or reach.ranks != ALL or apart or not source.alone(stmt):
        return no_patch(WAIT, "call barrier() on every rank, behind the write and before the read")
    indent = source.indent(stmt.lineno)
    lines = [f"if {module}.is_initialized():", f"{source.one_level(indent)}{module}.barrier()"]
    edits = [source.insert_line(stmt.lineno, line, indent) for line in lines]
    return Patch(id=WAIT, safety="unsafe", why_unsafe="every rank has to come there", edits=edits)


def _asks_for_files(key: Key) -> bool:
    """Return whether a value comes from a question for the files that there are."""
    return any(part.op == "call" and str(part.args[0]).rpartition(".")[2] in FILES for part in parts(key))


def _is_at(node: ast.expr, site: Site) -> bool:
    return (node.lineno, node.col_offset + 1) == (site.line, site.column)


def _guard(script: Script, reach: Reach) -> ast.If | None:
    """Return the outermost statement of the script that keeps ranks away from a fact."""
    for each in reach.conditions:
        if each.test.differs_by & BY_RANK and each.site.path == script.source.path:
            return node_at(script.source.tree, each.site.line, each.site.column, ast.If)
    return None


def _model(script: Script, guard: ast.If, reach: Reach, fact: Noted) -> str:
    """Return the code by which a model that is loaded below a condition is named behind it, or ""."""
    inside = {id(node) for node in ast.walk(guard)}
    bound = {node.id for node in ast.walk(guard) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    named: list[ast.expr] = []
    if isinstance(fact.node.func, ast.Attribute) and id(fact.node) in inside:
        named = [fact.node.func.value]
    for site in reach.calls if not named else ():
        call = node_at(script.source.tree, site.line, site.column, ast.Call)
        if call is not None and id(call) in inside and fact.owner is not None:
            given = [*call.args, *(each.value for each in call.keywords)]
            named = [each for each in given if script.evaluated.value(each) is fact.owner.key]
            break
    if len(named) != 1 or not dotted_name(named[0]) or dotted_name(named[0]).partition(".")[0] in bound:
        return ""
    return script.source.code(named[0])
