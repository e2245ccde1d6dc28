"""DW432 and DW433: optimizer steps that are larger by the number of ranks than the program means."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.collective_effects import SAME
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.sequences import Site
from ...training_script.model.values import Library, reduces_by
from ...training_script.nodes import nodes_below, nodes_of_kinds, walk
from ...training_script.syntax import dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES, LOADER_CLASSES, is_optimizer
from ..patches.average_gradients import divide_sum
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import at_node, violation_at

ONE_RATE = "keep-learning-rate"
ALL_REDUCE = "torch.distributed.all_reduce"
DIVIDES = re.compile(r"(?:_foreach_)?(?:div|mul|true_divide)_?")  # functions of torch
REDUCES_LATER = re.compile(r"comm_hook|no_sync|require_backward_grad_sync|accum", re.IGNORECASE)
SUMMED_LOSS = re.compile(r"""reduction\s*=\s*["']sum|\.sum\(\)""")


def check_sums(script: Script, run: Run) -> Iterator[Violation]:
    """DW432: yield the gradients or parameters that are summed over the ranks and divided by nothing."""
    held = {fact.result.key for _, fact in run.of(".parameters", ".named_parameters")}
    yield from _other_operations(script, run, held)
    yield from _hooks_that_sum(script, run)
    yield from _sums_of_averages(script, run)
    sums = [(reach, fact) for reach, fact in run.of(ALL_REDUCE) if _sums(run, reach, fact, held)]
    if not sums or any(run.of(*DDP_CLASSES)) or not all(script.is_here(reach) for reach, _ in sums):
        return
    losses = [fact.owner.key for _, fact in run.of(".backward") if fact.owner]
    if run.function is not None and not script.mentions(".backward("):
        return  # a helper: what calls it may divide the loss
    if script.mentions(SUMMED_LOSS) or any(map(_is_scaled, losses)):
        return
    names = {dotted_name(fact.node.args[0]).partition(".")[0] for _, fact in sums if fact.node.args}
    sites = [fact.site for _, fact in sums]
    if any(_may_average(script, node, names, sites) for node in nodes_below(script.source.tree)):
        return
    for reach, fact in sums[:1]:
        given = argument(fact, 0, "tensor")
        summed = "gradients" if given and "gradient" in given.facts else "parameters"
        effect = "each step is" if summed == "gradients" else "they are"
        yield from violation_at(
            script,
            reach,
            f"the {summed} of all ranks are summed and divided by nothing: {effect} larger by the number of ranks",
            0.8,
            patch=partial(divide_sum, script, fact.node) if len(sums) == 1 else None,
        )


def _sums_of_averages(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the sums over the ranks of gradients that DDP has averaged, where nothing divides them."""
    if not any(reach.several for reach, _ in run.of(*DDP_CLASSES)) or script.mentions(REDUCES_LATER):
        return
    held = {
        fact.result.key
        for _, fact in run.of(".parameters", ".named_parameters")
        if fact.owner and "ddp" in fact.owner.facts
    }
    for reach, fact in run.of(ALL_REDUCE):
        given = argument(fact, 0, "tensor")
        of_ddp = given is not None and any(part in held for part in parts(given.key))
        if not of_ddp or given is None or not _is_gradient(given.key) or not _sums(run, reach, fact, held):
            continue
        names = {dotted_name(fact.node.args[0]).partition(".")[0]} if fact.node.args else set[str]()
        if script.is_here(reach) and not any(
            _may_average(script, node, names, [fact.site]) for node in nodes_below(script.source.tree)
        ):
            yield from violation_at(
                script,
                reach,
                "DDP has averaged these gradients, and their sum over the ranks is divided by nothing: each step is "
                "larger by the number of ranks",
                0.8,
            )
            return


def _hooks_that_sum(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reductions in hooks of DDP that sum up the gradients of a bucket and divide them by nothing."""
    if not run.distributed or run.function is not None:
        return
    losses = [fact.owner.key for _, fact in run.of(".backward") if fact.owner]
    scaled = script.mentions(SUMMED_LOSS) or any(map(_is_scaled, losses))
    by_hand = not scaled and not any(run.of(*DDP_CLASSES))
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="register_comm_hook"), args=[_, ast.Name() as given]):
                first = 1
            case ast.Call(func=ast.Attribute(attr="register_hook"), args=[ast.Name() as given]) if by_hand:
                first = 0
            case _:
                continue
        functions = nodes_of_kinds(script.source.tree, ast.FunctionDef)
        hooks = [each for each in functions if each.name == given.id]
        for hook in hooks:
            sums = [each for each in walk(hook) if isinstance(each, ast.Call) and last_name(each.func) == "all_reduce"]
            tensors = _tensors_of(hook, first)
            if len(sums) == 1 and not any(_may_scale(each, tensors) for each in walk(hook)):
                yield Violation(
                    line=sums[0].lineno,
                    column_bytes=sums[0].col_offset + 1,
                    end_line=sums[0].end_lineno or sums[0].lineno,
                    message="this hook sums up the gradients of all ranks and divides them by nothing: each step is "
                    "larger by the number of ranks",
                    confidence=0.8,
                )


def _tensors_of(hook: ast.FunctionDef, first: int) -> set[str]:
    """Return the names of the gradients in a hook: what is taken from its argument at a place, and made of that."""
    names = {each.arg for each in hook.args.args[first : first + 1]}
    for node in sorted((each for each in walk(hook) if isinstance(each, ast.Assign)), key=lambda each: each.lineno):
        if any(isinstance(each, ast.Name) and each.id in names for each in walk(node.value)):
            names |= {each.id for target in node.targets for each in walk(target) if isinstance(each, ast.Name)}
    return names


def _may_scale(node: ast.AST, tensors: set[str]) -> bool:
    """Return whether an expression divides or multiplies gradients, averages, or calls another hook."""
    match node:
        case ast.BinOp(left=left, op=ast.Div() | ast.Mult(), right=right):
            return any(_is_gradient_of(each, tensors) for each in (left, right))
        case ast.AugAssign(target=target, op=ast.Div() | ast.Mult()):
            return _is_gradient_of(target, tensors)
        case ast.Attribute(attr=name):
            return name in ("AVG", "PREMUL_SUM", "div", "div_", "mul", "mul_", "true_divide") or name.endswith("_hook")
        case ast.Name(id=name):
            return name.endswith("_hook")
        case _:
            return False


def _is_gradient_of(node: ast.expr, tensors: set[str]) -> bool:
    """Return whether an operand is a tensor itself, or what a future gives, rather than a number about it."""
    if isinstance(node, ast.Name):
        return node.id in tensors
    inner = node
    while isinstance(inner, ast.Subscript | ast.Call | ast.Attribute):
        if isinstance(inner, ast.Attribute) and inner.attr in ("value", "wait", "buffer", "to"):
            return True
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    return isinstance(node, ast.Subscript)


def _is_scaled(loss: Key) -> bool:
    """Return whether a loss is divided or multiplied by what the ranks share, or by their number."""
    factors = loss.args[1:] if loss.op == "binary" and loss.args[0] in ("Mult", "Div") else ()
    return any(each.op in (*SAME, "world") or _is_scaled(each) for each in factors)


def _sums(run: Run, reach: Reach, fact: Noted, held: set[Key]) -> bool:
    """Return whether a reduction sums gradients or parameters of all ranks."""
    op, group = argument(fact, 1, "op"), argument(fact, 2, "group")
    summed = reduces_by(op, "SUM")
    of_all = group is None or group.key is run.keys.none
    return reach.several and summed and of_all and _is_of_model(fact, held)


def _is_of_model(reduction: Noted, held: set[Key]) -> bool:
    """Return whether a reduction is one of gradients, or of the parameters of a model."""
    given = argument(reduction, 0, "tensor")
    if given is None:
        return False
    key = given.key.args[0] if given.key.op == "attribute" and given.key.args[1] == "data" else given.key
    return "gradient" in given.facts or (key.op == "element" and any(part in held for part in parts(key)))


def _is_gradient(key: Key) -> bool:
    """Return whether a value is a gradient itself, rather than something computed from one."""
    while key.op == "attribute" and key.args[1] == "data":
        key = key.args[0]
    return key.op == "attribute" and key.args[1] == "grad"


def _other_operations(script: Script, run: Run, held: set[Key]) -> Iterator[Violation]:
    """Yield the reductions of gradients or parameters by something else than a sum or a mean."""
    for reach, fact in run.of(ALL_REDUCE):
        op, given = argument(fact, 1, "op"), argument(fact, 0, "tensor")
        name = op.obj.name.rpartition(".")[2] if op and isinstance(op.obj, Library) else ""
        is_norm = given is not None and "gradient" in given.facts and not _is_gradient(given.key)
        if name in ("MAX", "MIN", "PRODUCT") and reach.several and _is_of_model(fact, held) and not is_norm:
            yield from violation_at(
                script,
                reach,
                f"{name} of the gradients or parameters of the ranks is not their mean: the ranks train with another "
                "value than one process with all data",
                0.85,
            )


def _may_average(script: Script, node: ast.AST, gradients: set[str], sums: list[Site]) -> bool:
    """Return whether an expression divides gradients or the loss: by any number, or anything by the number of ranks.

    What a collective has summed up elsewhere than at ``sums`` is divided for a report.
    """
    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=right) | ast.AugAssign(target=left, op=ast.Div(), value=right):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name), args=[left, right, *_]):
            if not DIVIDES.fullmatch(name):
                return False
        case ast.Call(func=ast.Attribute(value=left, attr="div_" | "div" | "mul_" | "mul"), args=[right, *_]):
            pass
        case _:
            return False
    if isinstance(left, ast.Constant):
        left = _multiplied(script, node) or left
    name = dotted_name(left)
    divisor = script.evaluated.value(right)
    if divisor is not None and divisor.is_constant and divisor.value == 1:
        return False
    if name.partition(".")[0] in gradients or "grad" in name:
        return True
    key = script.evaluated.value(left)
    received = [part for part in parts(key) if part.op in SAME] if key else []
    of_report = received and not any(_is_made_at(part, site) for part in received for site in sums)
    return script.is_world_size(right) and not of_report


def _is_made_at(result: Key, site: Site) -> bool:
    """Return whether what a collective fills is an argument of the call at a place."""
    path, line = result.args[:2] if result.op == "filled" else ("", 0)
    return path == site.path and line in range(site.line, site.end_line + 1)


def _multiplied(script: Script, factor: ast.AST) -> ast.expr | None:
    """Return what is multiplied by a factor."""
    match script.source.parents.get(factor):
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return right if left is factor else left
        case ast.AugAssign(target=target, op=ast.Mult()):
            return target
        case ast.Call(func=ast.Attribute(value=held, attr="mul" | "mul_")):
            return held
        case _:
            return None


def check_rate(script: Script, run: Run) -> Iterator[Violation]:
    """DW433: yield the learning rates that grow with the ranks though the ranks share a batch of one size."""
    sizes = [size.key for _, fact in run.of(*LOADER_CLASSES) if (size := argument(fact, 1, "batch_size"))]
    inputs = (value.key for _, fact in run.of(WRAPPED_FORWARD) for value in fact.values)
    cuts = (part for key in inputs for part in parts(key) if part.op == "slice")
    sizes += [part for each in cuts for part in parts(each) if _is_shared(part) and part.args[1].op != "length"]
    if not sizes or not any(map(_is_shared, sizes)):
        return
    for reach in run.reached:
        if not isinstance(reach.fact, Noted) or not is_optimizer(reach.name) or not reach.several:
            continue
        rate = argument(reach.fact, 1, "lr")
        if rate and _grows(rate.key) and not any(map(_is_shared, parts(rate.key))):
            made = next((node for node in nodes_below(script.source.tree) if _makes(script, node, rate.key)), None)
            yield from violation_at(
                script,
                at_node(script, reach, made),
                "the learning rate is multiplied by the number of ranks, and the batch of all ranks together has the "
                "same size for any number: it is divided by them",
                0.75,
                patch=partial(_without_ranks, script, made) if made else None,
            )


def _without_ranks(script: Script, made: ast.AST) -> Patch:
    """Return the patch that takes the number of ranks out of a product."""
    sides = [made.left, made.right] if isinstance(made, ast.BinOp) else []
    others = [each for each in sides if not script.is_world_size(each)]
    if not isinstance(made, ast.BinOp) or len(others) != 1:
        return no_patch(ONE_RATE, "keep the learning rate, or the size of the batch of each rank")
    edits = [script.source.replace(made, script.source.code(others[0]))]
    return Patch(id=ONE_RATE, safety="unsafe", why_unsafe="which of the two is meant is not known", edits=edits)


def _is_shared(size: Key) -> bool:
    """Return whether a number is a part of one by the number of ranks."""
    return size.op == "binary" and size.args[0] in ("FloorDiv", "Div") and size.args[2].op == "world"


def _grows(rate: Key) -> bool:
    if rate.op != "binary" or rate.args[0] != "Mult":
        return False
    return any(each.op == "world" or _grows(each) for each in rate.args[1:])


def _makes(script: Script, node: ast.AST, rate: Key) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and script.evaluated.value(node) is rate
