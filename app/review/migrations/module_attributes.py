"""Reach the model's own attributes through ``.module`` once it is wrapped."""

import ast

from ...training_script.syntax import FUNCTIONS, dotted_name
from .rewriting import Rewriting

# Of torch.nn.Module, with the same effect on the wrapper.
SAME_ON_WRAPPER = {
    *("train", "eval", "training", "parameters", "zero_grad", "to", "cuda", "cpu", "requires_grad_", "buffers"),
    *("module", "no_sync", "require_backward_grad_sync", "join", "half", "float", "bfloat16", "compile"),
}


def unwrap_attributes(made: Rewriting) -> None:
    """Put ``.module`` before attributes that the wrapper does not have, or names with another prefix."""
    if made.facts.data_parallel and not made.was_conditional:
        return  # the wrapper was there before, with the same names
    for call in made.facts.calls:
        if made.facts.named(call) == "torch.save" and call.args and made.facts.is_model(call.args[0]):
            made.surround(call.args[0], "", ".module")
    for node in made.facts.nodes:
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)):
            continue
        if isinstance(node.value, ast.Attribute) and node.value.attr == "module":
            continue
        if not dotted_name(node.value) or not made.facts.is_model(node.value) or not runs_after_wrap(made, node):
            continue
        if node.attr == "forward":
            made.replace(node, made.source.code(node.value))
        elif node.attr not in SAME_ON_WRAPPER:
            made.replace(node, f"{made.source.code(node.value)}.module.{node.attr}")


def runs_after_wrap(made: Rewriting, node: ast.AST, depth: int = 5) -> bool:
    """Return whether the code of ``node`` runs when the model is wrapped, by the calls that lead to it."""
    wrapped = made.wrapped_at
    if wrapped is None:
        return False
    function = made.facts.names.enclosing_function(node)
    if function is made.facts.names.enclosing_function(wrapped):
        line = getattr(node, "lineno", 0)
        return line >= wrapped.lineno
    calls = made.facts.names.arguments.get(function, []) if isinstance(function, FUNCTIONS) else []
    if not calls or not depth:
        return True
    return any(runs_after_wrap(made, call, depth - 1) for call, _ in calls)
