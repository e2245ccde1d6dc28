"""DW421: what a distributed checkpoint is loaded into, and is not read afterwards."""

import ast
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.syntax import dotted_name, last_name
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..value_kinds import FLOAT, NUMBER, TEXT, Kinds
from ..violations import violation_at

LOAD = "torch.distributed.checkpoint.load"
COPIES = {"clone", "deepcopy"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loads that change a dict of numbers or copies only, of which nothing is read afterwards."""
    kinds = Kinds(script)
    for reach, fact in run.of(LOAD):
        call = fact.node
        given = call.args[0] if call.args else next((e.value for e in call.keywords if e.arg == "state_dict"), None)
        if given is None or not script.is_here(reach) or reach.unsure:
            continue
        if isinstance(given, ast.Name) and _is_read_behind(script, call, given.id):
            continue
        for made in origins_at(script, given) if isinstance(given, ast.Name) else [given]:
            lost = _lost(script, kinds, call, made) if isinstance(made, ast.Dict) else ""
            if lost:
                yield from violation_at(
                    script,
                    reach,
                    f"this loads `{lost}` into the dict, and nothing reads it there: the value stays as it was",
                    0.85,
                )
                break


def _lost(script: Script, kinds: Kinds, call: ast.Call, made: ast.Dict) -> str:
    """Return the entry of a dict that is a number used later, or a copy, neither of which loading changes elsewhere."""
    for key, value in zip(made.keys, made.values, strict=True):
        name = key.value if isinstance(key, ast.Constant) else None
        if not isinstance(name, str):
            continue
        numbers = kinds.of(value) <= {NUMBER, FLOAT, TEXT}
        used = isinstance(value, ast.Name | ast.Attribute) and _is_read_behind(script, call, dotted_name(value))
        copied = any(isinstance(each, ast.Call) and last_name(each) in COPIES for each in ast.walk(value))
        if copied or (numbers and used):
            return name
    return ""


def _is_read_behind(script: Script, call: ast.Call, name: str) -> bool:
    """Return whether a name is read behind a call in its function, before it in a loop around it, or by others."""
    around = script.names.enclosing_function(call) or script.source.tree
    end = call.end_lineno or call.lineno
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and dotted_name(node) == name
        and node.lineno > end
        for node in ast.walk(around)
    )
