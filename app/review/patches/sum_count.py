"""The patch that sums up over the ranks what each of them has counted."""

import ast

from ...training_script.syntax import call_argument, dotted_name
from ..epoch_loops import loop_around
from ..rule_context import Patch, Script, no_patch
from .average_gradients import is_alone
from .names_in_code import names_set
from .torch_names import free_name, torch_module

FIX = "sum-the-count"
NAMES = ("count_of_all", "number_of_all", "counted_by_all")
BY_HAND = "sum up the count over the ranks, once, before it is divided by"


def sum_count(script: Script, reduce: ast.Call, counted: ast.AugAssign | ast.Assign) -> Patch:
    """Return the patch that adds the reduction of a count behind that of what is divided by it."""
    source, stmt, count = script.source, script.source.statement_of(reduce), _name_of(counted)
    torch, name, module = torch_module(script, reduce), free_name(script, NAMES), dotted_name(reduce.func)
    tensor, last = dotted_name(reduce.args[0]), stmt.end_lineno or stmt.lineno
    alone = is_alone(script, stmt, reduce)
    fits = alone and counted.lineno < stmt.lineno and not _adds_again(script, stmt, counted)
    if not (fits and torch and name and module and tensor and count):
        return no_patch(FIX, BY_HAND)
    group, indent = call_argument(reduce, "group", 2), source.indent(stmt.lineno)
    of_group = f", group={source.one_line(group)}" if group is not None else ""
    lines = [
        f"{name} = {torch}.tensor(float({count}), dtype={torch}.float64, device={tensor}.device)",
        f"{module}({name}{of_group})",
        f"{count} = {name}.item()",
    ]
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="what reads the count as that of this rank gets the one of all",
        edits=[source.insert_line(last + 1, line, indent) for line in lines],
    )


def _name_of(counted: ast.AugAssign | ast.Assign) -> str:
    return dotted_name(counted.target if isinstance(counted, ast.AugAssign) else counted.targets[0])


def _adds_again(script: Script, reduction: ast.stmt, counted: ast.AugAssign | ast.Assign) -> bool:
    """Return whether a loop goes on counting with what a reduction has made the count of all ranks."""
    count, loop = _name_of(counted), loop_around(script, reduction)
    while loop is not None:
        inside = [node for node in ast.walk(loop) if isinstance(node, ast.stmt)]
        starts = any(isinstance(each, ast.Assign) and count in names_set(each) for each in inside)
        if counted in inside and not starts:
            return True
        loop = loop_around(script, loop)
    return count.startswith("self.")
