"""DW218: attributes of the model that are read from DDP, which does not have them."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Read
from ...training_script.model.keys import RANKS
from ...training_script.model.reach import Run
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.use_inner_model import inner_model
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

FIX = "read-from-inner-model"
ASKS = {"hasattr", "getattr", "isinstance", "is_parallel", "type"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reads of attributes that only the model inside DDP has."""
    wraps = {fact.result.key: fact for _, fact in run.of(*DDP_CLASSES)}
    for reach in run.reached:
        read = reach.fact
        if not isinstance(read, Read) or not reach.several or reach.attempted or not script.is_here(reach):
            continue
        held = {run.keys.specialise(read.owner.key, rank) for rank in RANKS}
        if held <= wraps.keys() and not _is_asked_for(script, read.node):
            line = wraps[next(iter(held))].site.line
            message = f"DDP has no attribute `{read.name}`: its `.module` has it (wrapped in line {line})"
            yield from violation_at(script, reach, message, 0.85, patch=lambda read=read: _from_inner(script, read))


def _is_asked_for(script: Script, node: ast.AST) -> bool:
    """Return whether a condition around a node asks what the model is or has."""
    at: ast.AST | None = node
    while at is not None:
        test = getattr(at, "test", None)
        asked = [test] if test is not None else at.values if isinstance(at, ast.BoolOp) else []
        for each in (inner for expr in asked for inner in ast.walk(expr)):
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in ASKS:
                return True
        at = script.source.parents.get(at)
    return False


def _from_inner(script: Script, read: Read) -> Patch:
    owner = read.node.value
    code = inner_model(script, owner) if isinstance(owner, ast.Name | ast.Attribute) else ""
    if not code:
        return no_patch(FIX, "read it from `.module` of the wrapped model, or keep the model in a variable of its own")
    return Patch(id=FIX, safety="safe", edits=[script.source.replace(owner, code)])
