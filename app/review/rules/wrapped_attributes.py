"""DW218: attributes of the model that are read from DDP, which does not have them."""

import ast
import re
from collections.abc import Iterator, Set

from ...training_script.model.function_steps import Noted, Read
from ...training_script.model.keys import RANKS, Key, parts
from ...training_script.model.library_functions import OF_TYPE
from ...training_script.model.module_api import PRETRAINED
from ...training_script.model.reach import Reach, Run, alternatives
from ...training_script.nodes import nodes_below
from ...training_script.syntax import dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.use_inner_model import inner_model
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

FIX = "read-from-inner-model"
# A script whose models may be wrapped by what hands on their attributes.
KEEPS_ATTRIBUTES = re.compile(r"fsdp|fully_?shard|deepspeed|parallelism", re.IGNORECASE)
ASKS = {"hasattr", "getattr", "isinstance", "is_parallel", "type"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reads of attributes that only the model inside DDP has."""
    wraps = {fact.result.key: fact for _, fact in script.noted(*DDP_CLASSES)}
    for reach in run.reached:
        read = reach.fact
        if not isinstance(read, Read) or reach.unsure or reach.attempted or not script.is_here(reach):
            continue
        if isinstance(read.node.value, ast.Name) and read.node.value.id == "self":
            continue  # in a method of the model, which is called by DDP
        if read.owner.facts >= {"prepared", "unwrapped"}:
            continue  # the ranks that read it may be those that have unwrapped it
        if PRETRAINED in read.owner.facts and script.mentions(KEEPS_ATTRIBUTES):
            continue
        if "prepared" in read.owner.facts and not is_asked_for(script, read.node):
            yield from violation_at(
                script,
                reach,
                f"with several ranks prepare returns DDP, which has no attribute `{read.name}`: read it from "
                "unwrap_model",
                0.8,
                severity="warning",
            )
            continue
        held = _models(run, reach, read, wraps.keys())
        wrap = next((fact for key, fact in wraps.items() if key in held), None)
        if wrap is None or is_asked_for(script, read.node) or _is_replaced(script, read.node.value, wrap, run):
            continue
        surely = held <= wraps.keys()
        message = f"DDP has no attribute `{read.name}`: its `.module` has it (wrapped in {_shown(script, wrap)})"
        yield from violation_at(
            script,
            reach,
            message,
            0.85 if surely else 0.65,
            severity=None if surely else "warning",
            patch=lambda read=read: _from_inner(script, read),
        )


def _models(run: Run, reach: Reach, read: Read, wrapped: Set[Key]) -> set[Key]:
    """Return what a model may be where an attribute of it is read; nothing if other objects may hold another one."""
    ranks = [rank for bit, rank in enumerate(RANKS) if reach.ranks & (1 << bit)]
    seen = {run.keys.specialise(read.owner.key, rank) for rank in ranks}
    found = {each for key in seen for each in alternatives(key, reach.conditions) if each.op != "if"}
    by_type = any(
        part.op == "if" and part.args[0].op == OF_TYPE and not wrapped.isdisjoint(parts(part))
        for key in seen
        for part in parts(key)
    )
    return set() if by_type or any(each.op in ("one of", "changing") for each in found) else found


def _is_replaced(script: Script, owner: ast.expr, wrap: Noted, run: Run) -> bool:
    """Return whether another method may have put the model in the place of the wrapper that a constructor makes."""
    if not isinstance(owner, ast.Attribute) or any(fact is wrap for _, fact in run.of(*DDP_CLASSES)):
        return False
    name = dotted_name(owner)
    for node in nodes_below(script.source.tree):
        if isinstance(node, ast.Assign) and name in map(dotted_name, node.targets):
            opens = (isinstance(each, ast.Attribute) and each.attr == "module" for each in ast.walk(node.value))
            if any(opens) or "unwrap" in last_name(node.value):
                return True
    return False


def _shown(script: Script, fact: Noted) -> str:
    name = "line " if fact.site.path == script.source.path else f"{fact.site.path.rpartition('/')[2]}:"
    return f"{name}{fact.site.line}"


def is_asked_for(script: Script, node: ast.AST) -> bool:
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
