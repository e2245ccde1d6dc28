"""Reduce what a training step logs over the ranks, so that a printed loss or accuracy is that of the whole batch."""

import ast
from typing import Literal

from ...training_script.syntax import dotted_name, last_name
from .losses import computed_names, is_loss, is_model_call, loss_sources
from .rewriting import Rewriting

Kind = Literal["mean", "sum", "same", "unknown"]
SAME_VALUE = {"detach", "cpu", "float", "double", "data", "clone", "item", "squeeze", "sqrt", "to"}
MEANS = {"mean"}
SUMS = {"sum", "count_nonzero"}
READS = {"item", "tolist"}
MOST_NAMES = 12


def reduce_logged_values(made: Rewriting) -> None:
    """Reduce each number that leaves the training step: ``loss.item()``, counts, and batch sizes that are added up."""
    facts = made.facts
    computed = computed_names(facts)
    for node in facts.nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[]) if attr in READS:
                if _of_training(made, node, value):
                    _reduce(made, value, is_one_number=attr == "item")
            case ast.Call(func=ast.Name(id="float" | "int"), args=[value]) if _of_training(made, node, value):
                if kind_of(made, value) != "unknown" or _reads(value, computed):
                    _reduce(made, value, is_one_number=False)
            case ast.Name() if is_loss(facts, node) and _is_printed(made, node):
                _reduce(made, node, is_one_number=True)
            case ast.Call() | ast.Subscript() if node in facts.in_training and _is_batch_size(made, node):
                if _is_counted(made, node):
                    made.surround(node, "", f" * {made.helpers.name('dist')}.get_world_size()")
            case _:
                pass


def _of_training(made: Rewriting, node: ast.AST, value: ast.expr) -> bool:
    """Return whether a number that is read is of the training step, where it is read or where it was computed."""
    facts = made.facts
    if node in facts.in_training:
        return _is_tensor_of_step(made, value)
    if isinstance(value, ast.Name):
        bound = [binding.at for binding in facts.names.bindings(value)]
        return any(at in facts.in_training for at in bound)
    return False


def _reads(value: ast.expr, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(value))


def _is_tensor_of_step(made: Rewriting, value: ast.expr) -> bool:
    """Return whether a value depends on names that the training step binds, or on what the model computes there."""
    facts = made.facts
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and is_model_call(facts, node):
            return True
        if isinstance(node, ast.Name) and any(each.at in facts.in_training for each in facts.names.bindings(node)):
            return True
    return False


def _reduce(made: Rewriting, value: ast.expr, *, is_one_number: bool) -> None:
    kind = kind_of(made, value)
    if kind == "unknown":
        made.report(value, f"{ast.unparse(value)} is of the batch of rank 0, no mean or sum over the ranks")
        if is_one_number:
            made.surround(value, made.helpers.name("of_rank_0") + "(", ")")
    elif kind != "same":
        made.surround(value, made.helpers.name(f"{kind}_over_ranks") + "(", ")")


def kind_of(made: Rewriting, value: ast.AST, above: frozenset[ast.AST] = frozenset()) -> Kind:
    """Return how the values of the ranks give that of the whole batch. ``above``: what it is read for already."""
    facts = made.facts
    if len(above) > MOST_NAMES:
        return "unknown"
    match value:
        case ast.expr() if any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in ast.walk(value)):
            return "same"  # the ranks have averaged the gradients
        case ast.Call() if last_name(value.func) == "clip_grad_norm_":
            return "same"  # of the gradients that the ranks have averaged
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in MEANS | SUMS:
            return "mean" if attr in MEANS else "sum"
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in SAME_VALUE:
            return kind_of(made, inner, above)
        case ast.Attribute(value=inner, attr="data"):
            return kind_of(made, inner, above)
        case ast.BinOp(left=left, op=ast.Div(), right=right) if _is_batch_size(made, right):
            return "mean" if kind_of(made, left, above) == "sum" else "unknown"
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            left_kind: Kind = kind_of(made, left, above)
            return left_kind if left_kind != "unknown" else kind_of(made, right, above)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            kinds: set[Kind] = {
                kind_of(made, each, above) for each in (left, right) if not isinstance(each, ast.Constant)
            }
            return kinds.pop() if len(kinds) == 1 else "unknown"
        case ast.Name() if is_loss(facts, value):
            return "mean"
        case ast.Name():
            return _kind_of_name(made, value, above)
        case ast.Call() if value in loss_sources(facts):
            return "mean"
        case ast.Call() if (leaves := facts.names.origins(value)) != [value]:
            kinds = {kind_of(made, leaf, above | {value}) for leaf in leaves}
            return kinds.pop() if len(kinds) == 1 else "unknown"
    return "unknown"


def _kind_of_name(made: Rewriting, name: ast.Name, above: frozenset[ast.AST]) -> Kind:
    kinds: set[Kind] = set()
    for binding in made.facts.names.bindings(name):
        at = binding.at
        if at in above or (isinstance(at, ast.AugAssign) and isinstance(at.op, (ast.Mult, ast.Div))):
            continue  # the value itself, or the same on another scale
        given = at.value if isinstance(at, ast.AugAssign) else binding.value
        if given is None:
            kinds.add("unknown")
        elif not isinstance(given, ast.Constant):
            kinds.add(kind_of(made, given, above | {at}))
    return kinds.pop() if len(kinds) == 1 else "unknown"


def _is_batch_size(made: Rewriting, node: ast.AST) -> bool:
    """Return whether an expression is the number of samples in a batch of the training step."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[batch]):
            pass
        case ast.Call(func=ast.Attribute(value=batch, attr="size"), args=[ast.Constant(value=0)]):
            pass
        case ast.Call(func=ast.Attribute(value=batch, attr="numel"), args=[]):
            pass
        case ast.Subscript(value=ast.Attribute(value=batch, attr="shape"), slice=ast.Constant(value=0)):
            pass
        case _:
            return False
    batch = batch.value if isinstance(batch, ast.Subscript) else batch  # batch["labels"]
    if not isinstance(batch, ast.Name):
        return False
    return any(binding.at in made.facts.in_training for binding in made.facts.names.bindings(batch))


def _is_counted(made: Rewriting, node: ast.AST) -> bool:
    """Return whether a batch size is added up, multiplied with a logged number, or printed."""
    if _is_printed(made, node):
        return True
    parents = made.source.parents
    at, above = node, parents[node]
    while isinstance(above, ast.BinOp):
        other = above.right if above.left is at else above.left
        if any(isinstance(each, ast.Call) and dotted_name(each.func).endswith(".item") for each in ast.walk(other)):
            return True
        at, above = above, parents[above]
    return isinstance(above, ast.AugAssign) and isinstance(above.op, ast.Add) and above.value is at


def _is_printed(made: Rewriting, node: ast.AST) -> bool:
    """Return whether an expression is an argument of ``print``, not inside another call."""
    while (above := made.source.parents.get(node)) is not None and not isinstance(above, ast.stmt):
        if isinstance(above, ast.Call):
            if isinstance(above.func, ast.Name):
                return above.func.id == "print"
            return isinstance(above.func, ast.Attribute) and above.func.attr == "format"
        if isinstance(above, ast.Attribute):
            return False
        node = above
    return False
