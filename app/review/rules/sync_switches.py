"""DW253: gradients that DDP does not reduce in the round of the step, as it is switched on behind the forward pass."""

import ast
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import LOOPS, dotted_name
from ..rule_context import Script, Violation

SWITCH = "require_backward_grad_sync"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the assignments to the switch of DDP between a forward pass and its backward pass."""
    if SWITCH not in script.source.text or not run.distributed:
        return
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=owner, attr=name)], value=value) if name == SWITCH:
                switched = not isinstance(value, ast.Constant)
            case _:
                continue
        before, after = _around(script, node)
        forward = next((each for each in reversed(before) if _calls(each, dotted_name(owner))), None)
        again = next((n for n, each in enumerate(after) if _calls(each, dotted_name(owner))), len(after))
        if switched and forward and any(_calls(each, "", "backward") for each in after[:again]):
            yield Violation(
                line=node.lineno,
                column=node.col_offset + 1,
                end_line=node.end_lineno or node.lineno,
                message=f"the forward pass reads this switch, too, and runs before it (line {forward.lineno}): it is "
                "set one round late, and DDP does not reduce the gradients of the round with the step",
                confidence=0.85,
            )


def _around(script: Script, stmt: ast.stmt) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the statements of the round of a loop, or of the function, before and behind one."""
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    at: ast.AST | None = stmt
    while isinstance(at, ast.stmt) and not isinstance(at, LOOPS):
        block = script.source.block_of(at)
        place = block.index(at) if at in block else 0
        before, after = [*block[:place], *before], [*after, *block[place + 1 :]]
        at = script.source.parents.get(at)
    return before, after


def _calls(stmt: ast.stmt, function: str, method: str = "") -> bool:
    """Return whether a statement calls a function by its name, or a method by its own."""
    calls = (node.func for node in ast.walk(stmt) if isinstance(node, ast.Call))
    if method:
        return any(isinstance(each, ast.Attribute) and each.attr == method for each in calls)
    return any(dotted_name(each) == function for each in calls)
