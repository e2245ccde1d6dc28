"""DW253 and DW406: the reduction of DDP switched on too late, or by a count of one rank."""

import ast
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import BY_RANK, LOCAL, Key, parts
from ...training_script.model.lengths import SHAPED
from ...training_script.model.reach import Condition, Reach, Run
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import LOOPS, dotted_name
from ..rule_context import Script, Violation
from ..violations import violation_at, violation_at_node

SWITCH = "require_backward_grad_sync"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the assignments to the switch of DDP between a forward pass and its backward pass."""
    if not script.mentions(SWITCH) or not run.distributed:
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
            yield violation_at_node(
                node,
                f"the forward pass reads this switch, too, and runs before it (line {forward.lineno}): it is "
                "set one round late, and DDP does not reduce the gradients of the round with the step",
                0.85,
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
    calls = (node.func for node in nodes_of_kinds(stmt, ast.Call))
    if method:
        return any(isinstance(each, ast.Attribute) and each.attr == method for each in calls)
    return any(dotted_name(each) == function for each in calls)


def check_choice(script: Script, run: Run) -> Iterator[Violation]:
    """DW406: yield the uses of no_sync that each rank makes by a count of its own data."""
    for reach, _ in run.of(".no_sync") if run.distributed else ():
        if not reach.several or not script.is_here(reach):
            continue
        own = [each for each in reach.conditions if _is_own(each.test) or _counts_own_sizes(script, reach, each)]
        if own:
            yield from violation_at(
                script,
                reach,
                f"each rank decides by a count of its own data (line {own[-1].site.line}) whether DDP reduces the "
                "gradients of this round: ranks that reduce them wait for those that do not",
                0.75,
            )


def _is_own(test: Key) -> bool:
    """Return whether data of a rank decide a comparison, and no collective has made them the same on all."""
    is_compared = test.op in ("compare", "and", "or", "not")
    return is_compared and bool(test.differs_by & LOCAL) and not any(part.op in SAME for part in parts(test))


def _counts_own_sizes(script: Script, reach: Reach, condition: Condition) -> bool:
    """Return whether a count in a condition sums up sizes of tensors that a loop over a part of the rank gets.

    They are sizes of one rank where the data decide them.
    """
    if not any(loop.amount.differs_by & BY_RANK for loop in reach.loops):
        return False
    counted = {part.args[0] for part in parts(condition.test) if part.op in ("altered", "changing")}
    if not counted:
        return False
    for node in nodes_below(script.source.tree):
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=added) if name in counted:
                sized = [each.value for each in ast.walk(added) if isinstance(each, ast.Attribute)]
                sized += [each.args[0] for each in ast.walk(added) if isinstance(each, ast.Call) and each.args]
                keys = [script.evaluated.value(each) for each in sized]
                if any(key is not None and _is_sized_by_element(key) for key in keys):
                    return True
            case _:
                pass
    return False


def _is_sized_by_element(tensor: Key) -> bool:
    """Return whether an element of the data decides the shape of a tensor."""
    name = str(tensor.args[0]).removeprefix("torch.") if tensor.op == "call" else ""
    shape = tensor.args[SHAPED[name] + 1 :] if name in SHAPED else ()
    return any(part.op == "element" for each in shape if isinstance(each, Key) for part in parts(each))
