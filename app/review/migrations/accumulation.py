"""Gradient accumulation under DDP: reduce the gradients once per optimizer step, not in every backward pass."""

import ast

from .losses import is_model_call
from .rewriting import Rewriting


def accumulate_unreduced(made: Rewriting) -> None:
    """Put forward and backward under ``no_sync`` in the batches after which the optimizer does not step."""
    facts = made.facts
    step = next(iter(facts.optimizer_steps.values()), None)
    loop = facts.batch_loop
    if step is None:
        return
    if step not in facts.in_training:
        _accumulate_in_own_loop(made, loop)
        return
    if step not in {*ast.walk(loop)}:
        return
    guard = _condition_around(made, made.source.statement_of(step), loop)
    if guard is None:
        return
    block = _forward_to_backward(made, loop.body)
    if not block or not _known_at_start(made, guard.test, loop, block[0]):
        made.report(guard, "gradients are reduced in every backward pass: put those before the last under no_sync()")
        return
    _reduce_only_if(made, made.source.one_line(guard.test), block)


def _accumulate_in_own_loop(made: Rewriting, loop: ast.stmt) -> None:
    """Reduce the gradients in the last iteration of a loop over the micro-batches of one step."""
    match loop:
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[count])):
            block = _forward_to_backward(made, loop.body)
            if block:
                _reduce_only_if(made, f"{name} == {made.source.one_line(count)} - 1", block)
        case _:
            pass


def _reduce_only_if(made: Rewriting, test: str, block: list[ast.stmt]) -> None:
    calls = (node for stmt in block for node in ast.walk(stmt) if isinstance(node, ast.Call))
    model = next(made.source.code(call.func) for call in calls if is_model_call(made.facts, call))
    null = f"{made.helpers.name('contextlib')}.nullcontext()"
    made.insert_before(block[0], f"with {null} if {test} else {model}.no_sync():")
    made.indent(block)


def _condition_around(made: Rewriting, stmt: ast.stmt, loop: ast.stmt) -> ast.If | None:
    """Return the condition in the loop body on which the optimizer steps, or None."""
    at: ast.AST = stmt
    while (above := made.source.parents[at]) is not loop:
        if isinstance(above, ast.If) and made.source.parents[above] is loop and at in above.body and not above.orelse:
            return above
        if not isinstance(above, (ast.If, ast.With)):
            return None
        at = above
    return None


def _forward_to_backward(made: Rewriting, body: list[ast.stmt]) -> list[ast.stmt]:
    facts = made.facts
    inside = [{*ast.walk(stmt)} for stmt in body]
    forward = [
        n
        for n, nodes in enumerate(inside)
        if any(isinstance(node, ast.Call) and is_model_call(facts, node) for node in nodes)
    ]
    backward = [n for n, nodes in enumerate(inside) if any(call in nodes for call in facts.backwards)]
    if not forward or not backward or forward[0] > backward[-1]:
        return []
    return body[forward[0] : backward[-1] + 1]


def _known_at_start(made: Rewriting, test: ast.expr, loop: ast.stmt, first: ast.stmt) -> bool:
    """Return whether the names of a condition have their values before the forward pass already."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "len"):
            return False
        if isinstance(node, ast.Name):
            for binding in made.facts.names.bindings(node):
                line = getattr(binding.at, "lineno", 0)
                if binding.at is not loop and binding.at in {*ast.walk(loop)} and line >= first.lineno:
                    return False
    return True
