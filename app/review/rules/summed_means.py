"""DW497: means of each rank's own data that are summed over the ranks, and divided by nothing behind that."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.collective_effects import SAME
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.model.reach import Run, argument
from ...training_script.model.values import reduces_by
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import called_function_name, dotted_name, last_name, scaled_in_place
from ..origins import origins_at
from ..patches.average_gradients import divide_sum
from ..rule_context import Script, Violation
from ..side_effects import is_side_effect
from ..types import RelatedPlace
from ..violations import violation_at
from .averages import MEANS
from .curved_averages import KEEPING

PLACE_OF_OP = {"torch.distributed.all_reduce": 1, "torch.distributed.reduce": 2}
MAKES_TENSOR = ("torch.tensor", "torch.as_tensor", "torch.FloatTensor")
COUNTED = ("altered", "changing", "counted")  # in a loop
SCALES = (ast.Div, ast.Mult, ast.FloorDiv)
IS_SUM = re.compile(r"(?:^|[_.])(?:total|sum|summed)(?:_|$)")  # what is meant to be one
IS_MEAN = re.compile(r"(?:^|[_.])(?:avg|average|mean)(?:_|$)")
READ = "what reads it as the sum gets the mean"
WHOLE = {"reduction", "size_average", "reduce"}  # arguments by which a loss is a sum


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the sums over the ranks of a mean that is reported, or computed with, as it is then."""
    for reach, fact in run.of(*PLACE_OF_OP):  # whichever ranks reach it
        node, op = fact.node.args[0] if fact.node.args else None, argument(fact, PLACE_OF_OP[fact.name], "op")
        summed = reduces_by(op, "SUM")
        name = dotted_name(node) if node is not None else ""
        if not name or not summed or not script.is_here(reach):
            continue
        around = script.names.enclosing_function(fact.node) or script.source.tree
        if node is None or is_scaled(script, around):
            continue
        mean = _mean(script, node, around) or _passed_mean(script, fact)
        if mean is None:
            continue
        used = _first_use(script, around, fact.node, name)
        if used is not None and (not IS_SUM.search(name) or _is_kept_as_mean(script, used)):
            yield from violation_at(
                script,
                reach,
                f"`{name}` is a mean of this rank (line {mean.lineno}), and line {used.lineno} takes the sum over the "
                "ranks for the mean: it is as many times larger as there are ranks",
                0.75,
                patch=partial(divide_sum, script, fact.node, READ),
                related=[RelatedPlace(path=script.source.path, line=used.lineno, message="read here")],
            )


def _passed_mean(script: Script, reduction: Noted) -> ast.expr | None:
    """Return where the quotient is computed that a tensor is made of, if one of two counts of this rank divides it."""
    held = _number_in(reduction.values[0].key)
    if not held.differs_by & LOCAL or not _is_count_quotient(held):
        return None
    divisions = (each for each in nodes_of_kinds(script.source.tree, ast.BinOp) if isinstance(each.op, ast.Div))
    return next((each for each in divisions if script.evaluated.value(each) is held), reduction.node)


def _number_in(held: Key) -> Key:
    """Return the only number that a tensor is made of, the tensor if it is made of something else."""
    while True:
        match held.op, held.args:
            case "call", (str() as name, Key() as inner, *_) if name in MAKES_TENSOR or name == "float":
                held = inner
            case "sequence", (Key() as inner,):
                held = inner
            case _:
                return held


def _mean(script: Script, node: ast.expr, around: ast.AST) -> ast.expr | None:
    """Return the expression that makes a tensor a mean over the data of one rank, None if it may be something else."""
    learned = set(_learned(around))
    pending, seen = [node], set[ast.AST]()
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        match each:
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in KEEPING:
                pending.append(inner)
            case ast.Call(func=ast.Attribute(attr="mean")):
                return each
            case ast.Call(args=[held, *_]) if script.names.qualified(each.func) in MAKES_TENSOR:
                one = held.elts[0] if isinstance(held, ast.List | ast.Tuple) and len(held.elts) == 1 else held
                pending.append(one)
            case ast.BinOp() | ast.Attribute() if _is_quotient_by_count(script, each):
                return each
            case ast.Call() if script.names.qualified(each.func) in MEANS:
                return None if WHOLE & {keyword.arg for keyword in each.keywords} else each
            case ast.Name() | ast.Attribute():
                if each is not node and dotted_name(each) in learned:
                    return each
                if divided := _divided(script, around, each):
                    return divided
                found = [origin for origin in origins_at(script, each) if isinstance(origin, ast.expr)]
                pending += found if len(found) == 1 else []
            case _:
                pass
    return None


def _is_quotient_by_count(script: Script, node: ast.expr) -> bool:
    """Return whether a value is divided by what this rank has counted, and nothing has summed that up before."""
    key = script.evaluated.value(node)
    return key is not None and _is_count_quotient(key)


def _is_count_quotient(key: Key) -> bool:
    if key.op != "binary" or key.args[0] != "Div" or any(each.op in SAME for each in parts(key)):
        return False
    by = key.args[2]
    if by.op == "max":
        by = next((each for each in by.args if not each.is_constant), by)
    return _is_counted(by)


def _is_counted(by: Key) -> bool:
    """Return whether a number is one that rounds, or calls of a method, add to."""
    match by.op, by.args:
        case op, _ if op in COUNTED:
            return True
        case "one of", counts:
            return all(map(_is_counted, counts))
        case "binary", ("Add", first, _):
            return first.op == "held" or _is_counted(first)
        case _:
            return False


def _learned(around: ast.AST) -> Iterator[str]:
    """Yield the names of the losses from which a function computes gradients."""
    for node in nodes_of_kinds(around, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=loss, attr="backward")):
                yield dotted_name(loss)
            case _:
                pass


def _divided(script: Script, around: ast.AST, name: ast.expr) -> ast.expr | None:
    """Return the division of a tensor in place by the size of a batch."""
    for node in nodes_of_kinds(around, ast.Call, ast.AugAssign):
        scaled = scaled_in_place(node, ast.Div)
        if not scaled or dotted_name(scaled[0]) != dotted_name(name) or node.lineno >= name.lineno:
            continue
        if _is_size(script, scaled[1]):
            return scaled[1]
    return None


def _is_size(script: Script, number: ast.expr) -> bool:
    """Return whether a number is that of the rows of a tensor, or a length."""
    each = number
    if isinstance(number, ast.Name):
        origins = origins_at(script, number)
        each = origins[0] if len(origins) == 1 and isinstance(origins[0], ast.expr) else number
    return isinstance(each, ast.Call) and called_function_name(each) in ("size", "len", "numel")


def is_scaled(script: Script, around: ast.AST) -> bool:
    """Return whether anything in a function is divided by, or multiplied with, the number of ranks."""
    for node in nodes_of_kinds(around, ast.BinOp, ast.AugAssign, ast.Call):
        match node:
            case ast.BinOp(op=ast.Div() | ast.Mult() | ast.FloorDiv(), left=left, right=right):
                numbers = [left, right]
            case ast.AugAssign(op=ast.Div() | ast.Mult(), value=value):
                numbers = [value]
            case ast.Call(func=ast.Attribute(attr="div" | "div_" | "mul" | "mul_"), args=[value, *_]):
                numbers = [value]
            case _:
                continue
        if any(script.is_world_size(number) for number in numbers):
            return True
    return False


def _first_use(script: Script, around: ast.AST, reduction: ast.Call, name: str) -> ast.expr | None:
    """Return the first place behind a reduction that reports its result or computes with it, if none divides it."""
    names, uses = {name}, list[ast.expr]()
    after = script.source.statement_of(reduction)
    later = [
        node
        for node in nodes_of_kinds(around, ast.Name, ast.Attribute)
        if isinstance(node.ctx, ast.Load) and node.lineno > (after.end_lineno or after.lineno)
    ]
    for node in sorted(later, key=lambda each: (each.lineno, each.col_offset)):
        if dotted_name(node) not in names:
            continue
        held: ast.AST = node
        parent = script.source.parents.get(held)
        while isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is held):
            if isinstance(parent, ast.Attribute) and parent.attr not in KEEPING:
                break
            held, parent = parent, script.source.parents.get(parent)
        match parent:
            case ast.Assign(targets=[ast.Name(id=target)]):
                names.add(target)
            case ast.Assign(targets=[ast.Attribute(attr=attr)]) if _is_shown_later(script, attr, around):
                uses.append(node)
            case ast.Return() if _is_taken_as_it_is(script, around):
                uses.append(node)
            case ast.BinOp(op=op) if isinstance(op, SCALES):
                return None
            case ast.AugAssign(op=op) if isinstance(op, SCALES):
                return None
            case ast.Call() | ast.keyword() | ast.FormattedValue() | ast.Dict() if _is_reported(script, held):
                uses.append(node)
            case ast.Call() if script.names.qualified(parent.func).startswith("torch."):
                uses.append(node)
            case _:
                pass
    return uses[0] if uses else None


def _is_taken_as_it_is(script: Script, function: ast.AST) -> bool:
    """Return whether the script uses what a function returns, and divides nothing by the number of ranks there."""
    name = getattr(function, "name", "")
    if not name:
        return False
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    calls = [each for each in calls if last_name(each.func) == name]
    used = [each for each in calls if not isinstance(script.source.parents.get(each), ast.Expr)]
    if IS_SUM.search(name):
        used = [each for each in used if not _is_held_as_sum(script, each)]
    around = (script.names.enclosing_function(each) or script.source.tree for each in calls)
    return bool(used) and not any(is_scaled(script, each) for each in around)


def _is_kept_as_mean(script: Script, used: ast.expr) -> bool:
    """Return whether the name or the attribute that a statement assigns is that of a mean."""
    stmt = script.source.statement_of(used)
    return isinstance(stmt, ast.Assign) and any(IS_MEAN.search(dotted_name(each)) for each in stmt.targets)


def _is_held_as_sum(script: Script, call: ast.Call) -> bool:
    """Return whether a result is not bound to a name, or to one of a sum."""
    match script.source.parents.get(call):
        case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)]):
            return bool(IS_SUM.search(name))
        case _:
            return True


def _is_shown_later(script: Script, attr: str, around: ast.AST) -> bool:
    """Return whether the script reports what an attribute holds, and divides nothing by the number of ranks there."""
    reads = [
        each
        for each in nodes_of_kinds(script.source.tree, ast.Attribute)
        if each.attr == attr and isinstance(each.ctx, ast.Load) and _is_reported(script, each)
    ]
    outside = [script.names.enclosing_function(each) or script.source.tree for each in reads]
    return bool(reads) and not any(each is around or is_scaled(script, each) for each in outside)


def _is_reported(script: Script, node: ast.AST) -> bool:
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.stmt):
        if isinstance(at, ast.Call) and (is_side_effect(at) or called_function_name(at) == "report"):
            return True
        at = script.source.parents.get(at)
    return False
