"""DW491: training steps of Lightning that a rank skips because of its own batch."""

import ast
from collections.abc import Iterator

from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.syntax import dotted_name, last_name, nodes_of_body
from ..rule_context import Script, Violation
from ..violations import violation_at_node
from .local_logs import MODULE, SEVERAL

STEP = "training_step"
SYNCHRONISES = "sync_dist=True"  # which a module for one process does without
BY_HAND = "automatic_optimization"
AGREES = ("all_reduce", "all_gather", "broadcast", "reduce", "all_gather_object")
# What is asked of the values of a batch.
ASKS = {"isnan", "isinf", "isfinite", "any", "all", "numel", "len", "sum", "item", "size", "nonzero", "count_nonzero"}


def check(script: Script) -> list[Violation]:
    """DW491: return the returns of no loss that depend on a batch, in modules of several processes."""
    if not script.mentions(MODULE) or not script.mentions(STEP) or script.mentions(BY_HAND):
        return []
    if not (script.mentions(SEVERAL) or script.mentions(SYNCHRONISES)):
        return []
    return [
        violation
        for cls in nodes_of_kinds(script.source.tree, ast.ClassDef)
        if any(dotted_name(base).rpartition(".")[2] == MODULE for base in cls.bases)
        for step in cls.body
        if isinstance(step, ast.FunctionDef) and step.name == STEP
        for violation in _skips(script, step)
    ]


def _skips(script: Script, step: ast.FunctionDef) -> Iterator[Violation]:
    """Yield the returns of nothing in a step that returns a loss elsewhere, and asks no other rank."""
    nodes = [*nodes_of_body(step)]
    returns = [node for node in nodes if isinstance(node, ast.Return)]
    agrees = any(isinstance(node, ast.Call) and last_name(node.func) in AGREES for node in nodes)
    if agrees or all(map(_is_of_nothing, returns)):
        return
    for node in filter(_is_of_nothing, returns):
        decided = _decided_by_data(script, step, node)
        if decided is not None:
            yield violation_at_node(
                node,
                "this rank skips the step because of its own batch: the others wait for its gradients, as Lightning "
                "supports this for one process only",
                0.8,
                branch=decided.lineno,
            )


def _is_of_nothing(node: ast.Return) -> bool:
    return node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)


def _decided_by_data(script: Script, step: ast.FunctionDef, node: ast.Return) -> ast.If | ast.ExceptHandler | None:
    """Return the condition on a batch, or the handler of an error, under which a statement is reached."""
    at = script.source.parents.get(node)
    while at is not None and at is not step:
        if isinstance(at, ast.ExceptHandler) or (isinstance(at, ast.If) and _asks_for_data(at.test)):
            return at
        at = script.source.parents.get(at)
    return None


def _asks_for_data(test: ast.expr) -> bool:
    """Return whether a test asks for the values of a tensor, or whether there is a batch."""
    return any(
        (isinstance(each, ast.Call) and last_name(each.func) in ASKS)
        or (isinstance(each, ast.Compare) and dotted_name(each.left) == "batch")
        for each in walk(test)
    )
