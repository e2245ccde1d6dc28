"""DW420: losses of tensors that were gathered without their gradients."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import parts
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.sequences import Site
from ...training_script.model.site_functions import function_in_module, innermost_function
from ...training_script.model.tensor_kinds import SIZED
from ...training_script.nodes import node_at, walk
from ...training_script.syntax import contains_line, dotted_name, last_name
from ..rule_context import Script, Violation
from ..violations import violation_at
from .averaged_by_hand import by_hand

GATHERS = ("torch.distributed.all_gather", "torch.distributed.all_gather_into_tensor")
CONTEXT = "ctx"  # the first argument of a function of autograd
WITHOUT = ("no_grad", "inference_mode", "detach")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the gathers after which a loss has no way back to the model, or none for what it is compared with."""
    lost = [fact.owner for _, fact in run.of(".backward") if fact.owner and "gathered" in fact.owner.facts - {"graph"}]
    alone = any("graph" not in owner.facts for owner in lost)
    yield from _by_hand(script, run)
    for reach, fact in run.of(*GATHERS) if lost else ():
        sent = argument(fact, 1, "tensor", "input_tensor")
        if sent is None or "graph" not in sent.facts or _has_own_backward(script, reach, fact):
            continue
        if _is_without_gradients(script, fact):
            continue
        if alone:
            message = (
                "the loss is made of gathered tensors alone, and this gather hands on no gradients: the model does not "
                "learn from it"
            )
            yield from violation_at(script, reach, message, 0.8)
        elif not _is_on_purpose(script, reach, fact):
            message = (
                "the loss compares with gathered tensors, and this gather hands on no gradients: not even the part of "
                "this rank gets any from there"
            )
            yield from violation_at(script, reach, message, 0.7, severity="warning")


def _by_hand(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the gathers of a program without DDP, which averages the gradients itself, that its loss compares with."""
    compares = any(fact.owner and fact.owner.facts & {"across", "gathered"} for _, fact in run.of(".backward"))
    for reach, fact in run.of(*GATHERS) if compares and by_hand(run) else ():
        sent = argument(fact, 1, "tensor", "input_tensor")
        made = sent is not None and any(part.op in ("at", SIZED) for part in parts(sent.key))
        if made and not (_has_own_backward(script, reach, fact) or _is_on_purpose(script, reach, fact)):
            yield from violation_at(
                script,
                reach,
                "the loss compares with gathered tensors, and this gather hands on no gradients: not even the part of "
                "this rank gets any from there",
                0.7,
                severity="warning",
            )


def _function_around(script: Script, site: Site) -> ast.AST | None:
    """Return the function around a place, which may be in another file."""
    here = site.path == script.source.path
    return innermost_function(script.source.tree, site.line) if here else function_in_module(site)


def _has_own_backward(script: Script, reach: Reach, gather: Noted) -> bool:
    """Return whether a gather is in the forward pass of a function of autograd, which hands on gradients itself."""
    around = [_function_around(script, site) for site in (gather.site, *reach.calls)]
    return any(
        isinstance(each, ast.FunctionDef) and any(given.arg == CONTEXT for given in each.args.args) for each in around
    )


def _is_without_gradients(script: Script, gather: Noted) -> bool:
    """Return whether a gather is under ``torch.no_grad()``, as that of an evaluation."""
    function = _function_around(script, gather.site)
    nodes = walk(function or script.source.tree)
    blocks = [node for node in nodes if isinstance(node, ast.With) and contains_line(node, gather.site.line)]
    managers = [each.context_expr for block in blocks for each in block.items]
    managers += function.decorator_list if isinstance(function, ast.FunctionDef) else []
    return any(last_name(_called(each)) in WITHOUT for each in managers)


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _is_on_purpose(script: Script, reach: Reach, gather: Noted) -> bool:
    """Return whether the function around a gather keeps gradients out, or puts the rank's own part back."""
    around = _function_around(script, gather.site) or script.source.tree
    filled = dotted_name(gather.node.args[0]) if gather.node.args else ""
    here = reach.calls[-1:] if reach.calls and reach.calls[-1].path == script.source.path else ()
    calls = [call for site in here if (call := node_at(script.source.tree, site.line, site.column, ast.Call))]
    for node in (inner for each in (around, *calls) for inner in ast.walk(each)):
        match node:
            case ast.Name() | ast.Attribute() if last_name(node) in WITHOUT:
                return True
            case ast.Subscript(value=held, ctx=ctx, slice=at) if dotted_name(held) == filled:
                if isinstance(ctx, ast.Store) or isinstance(at, ast.Slice):
                    return True
            case _:
                pass
    return not filled
