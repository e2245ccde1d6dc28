"""DW262 and DW263: hooks that replace the mean of DDP by a sum, or step before DDP has reduced the gradients."""

import ast
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, call_argument, dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

REGISTERS, AFTER_GRADIENT = "register_comm_hook", "register_post_accumulate_grad_hook"
SCALES = {"div", "div_", "mul", "mul_", "true_divide", "true_divide_", "mean", "AVG", "PREMUL_SUM", "lerp", "addcdiv_"}
SUMS = {"torch.distributed.all_reduce", "torch.distributed.distributed_c10d.all_reduce"}
COUNTS = {"numel", "nelement", "element_size", "itemsize", "nbytes", "size", "len"}
MOST_CALLS = 3  # of functions in each other
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def check_sum(script: Script, run: Run) -> Iterator[Violation]:
    """DW262: yield the sums over the ranks in a communication hook that nothing divides."""
    if run.function is not None or not script.mentions(REGISTERS) or not run.distributed:
        return
    if any(fact.owner and "divided" in fact.owner.facts for _, fact in run.of(".backward")):
        return
    for hook in nodes_below(script.source.tree):
        if not isinstance(hook, FUNCTIONS) or not _takes_bucket(hook):
            continue
        body = [node for function in _with_called(script, hook) for node in ast.walk(function)]
        sums = [node for node in body if isinstance(node, ast.Call) and _is_sum(script, node)]
        if len(sums) == 1 and not any(map(_scales, body)):
            yield violation_at_node(
                sums[0],
                "this hook replaces the reduction of DDP, which takes the mean: the gradients are the sum over the "
                "ranks, and the step is as many times too long",
                0.85,
            )


def check_step(script: Script, run: Run) -> Iterator[Violation]:
    """DW263: yield the hooks of parameters in DDP that step an optimizer as soon as a rank has its own gradient."""
    if not script.mentions(AFTER_GRADIENT) or run.function is not None:
        return
    wraps = [fact for reach, fact in run.of(*DDP_CLASSES) if reach.several]
    for node in nodes_below(script.source.tree) if wraps else ():
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[given, *_]) if name == AFTER_GRADIENT:
                pass
            case _:
                continue
        for hook in _functions(script, given):
            step = _step(script, hook)
            if step is not None and not any(_reduces(script, each) for each in _with_called(script, hook)):
                yield violation_at_node(
                    node,
                    f"this hook steps an optimizer (line {step.lineno}) with the gradient of one rank: DDP reduces it "
                    "later in the backward pass",
                    0.85,
                    related=[RelatedPlace(path=script.source.path, line=step.lineno, message="the step")],
                )
                return


def _takes_bucket(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function has the parameters of a communication hook, and reads the buffer of its bucket."""
    given = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in ("buffer", "gradients")
        and isinstance(each.func.value, ast.Name)
        and each.func.value.id in given[1:]
        for each in ast.walk(function)
    )


def _functions(script: Script, node: ast.expr) -> Iterator[Function]:
    """Yield the functions that an expression may stand for, and those inside of one that a call of it returns."""
    for each in (node, *origins_at(script, node)):
        called = each.func if isinstance(each, ast.Call) else each
        if isinstance(called, ast.Name):
            yield from (bound.at for bound in script.names.bindings(called) if isinstance(bound.at, FUNCTIONS))
        elif isinstance(called, ast.Attribute) and (method := _method(script, called.attr)):
            yield method
        elif isinstance(called, ast.Lambda):
            yield called
        elif isinstance(each, FUNCTIONS):
            yield each


def _method(script: Script, name: str) -> Function | None:
    """Return the only method of this name."""
    found = [
        each
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, FUNCTIONS) and each.name == name
    ]
    return found[0] if len(found) == 1 else None


def _with_called(script: Script, function: Function, depth: int = MOST_CALLS) -> list[Function]:
    """Return a function and those of the script that it calls."""
    found = [function]
    for node in ast.walk(function) if depth else ():
        if isinstance(node, ast.Call):
            for each in _functions(script, node.func):
                if each is not function:
                    found += _with_called(script, each, depth - 1)
    return found


def _is_sum(script: Script, call: ast.Call) -> bool:
    """Return whether a call sums up a tensor over the ranks of any group."""
    op = call_argument(call, "op", 1)
    summed = op is None or dotted_name(op).endswith("SUM")
    return summed and script.names.qualified(call.func) in SUMS


def _scales(node: ast.AST) -> bool:
    """Return whether an expression divides or multiplies."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        counted = isinstance(node, ast.BinOp) and _counts(node.left) and _counts(node.right)
        return isinstance(node.op, ast.Div | ast.Mult | ast.FloorDiv) and not counted
    return isinstance(node, ast.Attribute) and node.attr in SCALES


def _counts(node: ast.expr) -> bool:
    """Return whether an expression counts elements or bytes, or is a number."""
    return isinstance(node, ast.Constant) or last_name(node.func if isinstance(node, ast.Call) else node) in COUNTS


def _step(script: Script, hook: Function) -> ast.expr | None:
    """Return the call by which a hook steps an optimizer."""
    for function in _with_called(script, hook):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
                return node
    return None


def _reduces(script: Script, function: Function) -> bool:
    """Return whether a function reduces something over the ranks, by its calls or by their names."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any("reduce" in last_name(each.func) or script.names.qualified(each.func) in SUMS for each in calls)
