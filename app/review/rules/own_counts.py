"""DW498: sums over all ranks that are divided by a number which each rank has counted for itself."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.collective_effects import SUMMED
from ...training_script.model.keys import BY_RANK
from ...training_script.model.reach import Run, argument
from ...training_script.model.values import reduces_by
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import called_function_name, dotted_name, last_name
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from ..origins import origins_at
from ..patches.sum_count import sum_count
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node
from .curved_averages import KEEPING
from .summed_means import is_scaled

COUNTS = {"size", "len", "numel", "sum"}
EXCHANGES = re.compile(r"\w*(?:reduce|gather|sync|broadcast)\w*", re.IGNORECASE)
LOADERS = re.compile(r"(?:loader|batches|_dl|^dl)$", re.IGNORECASE)
NUMBERS = {"float", "int", "max", "tensor", "as_tensor"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the quotients of a sum over the ranks and a count that only grows by the data of this rank."""
    yield from _by_lengths(script, run)
    for reach, fact in run.of("torch.distributed.all_reduce"):
        op = argument(fact, 1, "op")
        summed = reduces_by(op, "SUM")
        name = dotted_name(fact.node.args[0]) if fact.node.args else ""
        around = script.names.enclosing_function(fact.node)
        if not name or not summed or around is None or not script.is_here(reach) or is_scaled(script, around):
            continue
        yield from _by_samplers(script, around, fact.node, name)
        counted = _counted(around)
        for node in nodes_of_kinds(around, ast.BinOp) if counted else ():
            match node:
                case ast.BinOp(left=left, op=ast.Div(), right=right) if node.lineno > fact.node.lineno:
                    count = counted.get(_name_in(right))
                    if count is None or name not in _names_of(script, left):
                        continue
                    yield violation_at_node(
                        node,
                        f"`{name}` is the sum of all ranks (line {fact.node.lineno}), and `{_name_in(right)}` counts "
                        "the data of this rank only: sum it up over the ranks as well",
                        0.8,
                        patch=partial(sum_count, script, fact.node, count),
                        related=[RelatedPlace(path=script.source.path, line=count.lineno, message="counted here")],
                    )
                case _:
                    pass


def _by_lengths(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the quotients of a sum over the ranks and the length of the part of this rank."""
    sums = {fact.site[:2]: reach for reach, fact in run.of("torch.distributed.all_reduce") if reach.several}
    for node in nodes_of_kinds(script.source.tree, ast.BinOp) if sums else ():
        if not isinstance(node.op, ast.Div):
            continue
        summed, count = script.evaluated.value(node.left), script.evaluated.value(node.right)
        if summed is None or count is None or summed.op != "filled" or summed.args[-1] != SUMMED:
            continue
        around = script.names.enclosing_function(node)
        scaled = around is not None and is_scaled(script, around)
        of_part = count.op == "length" and count.differs_by & BY_RANK
        if of_part and summed.args[:2] in sums and not scaled:
            line = summed.args[1]
            yield violation_at_node(
                node,
                f"this is the sum of all ranks (line {line}), and the number that divides it is that of this rank's "
                "part only: sum it up over the ranks as well",
                0.8,
                related=[RelatedPlace(path=script.source.path, line=line, message="summed here")],
            )


def _by_samplers(script: Script, around: ast.AST, reduction: ast.Call, name: str) -> Iterator[Violation]:
    """Yield the quotients of a sum over the ranks and the number of samples or batches of this rank."""
    if not script.mentions("DistributedSampler"):
        return
    for node in nodes_of_kinds(around, ast.BinOp):
        match node:
            case ast.BinOp(
                left=left,
                op=ast.Div(),
                right=ast.Call(func=ast.Name(id="len"), args=[ast.Name() | ast.Attribute() as held]),
            ) if node.lineno > reduction.lineno and _is_share(script, held) and name in _names_of(script, left):
                yield violation_at_node(
                    node,
                    f"`{name}` is the sum of all ranks (line {reduction.lineno}), and `{script.source.one_line(held)}` "
                    "has the samples of this rank only: divide by the number of all",
                    0.8,
                    related=[RelatedPlace(path=script.source.path, line=reduction.lineno, message="summed up here")],
                )
            case _:
                pass


def _is_share(script: Script, held: ast.expr) -> bool:
    """Return whether a value is a sampler for the ranks, or a loader with one."""
    if last_name(held) == "sampler" and isinstance(held, ast.Attribute):
        return True
    made = (
        [each for each in origins_at(script, held) if isinstance(each, ast.Call)] if isinstance(held, ast.Name) else []
    )
    names = [script.names.qualified(each.func) for each in made]
    shared = [
        each
        for call, name in zip(made, names, strict=True)
        if name in LOADER_CLASSES
        for each in call.keywords
        if each.arg == "sampler" and not (isinstance(each.value, ast.Constant))
    ]
    return bool(made) and (all(name in SAMPLER_CLASSES for name in names) or len(shared) == len(made))


def _counted(around: ast.AST) -> dict[str, ast.AugAssign | ast.Assign]:
    """Return the names that a function only adds sizes to, and passes to no other rank."""
    found: dict[str, ast.AugAssign | ast.Assign] = {}
    without, bound = set[str](), dict[str, int]()  # and the last line that gives a name another value
    for node in ast.walk(around):
        match node:
            case ast.AugAssign(target=target, op=ast.Add(), value=value) if is_count(value):
                found.setdefault(dotted_name(target), node)
            case ast.AugAssign(target=target):
                without.add(dotted_name(target))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if _is_total(call):
                found.setdefault(name, node)
            case ast.Assign(targets=targets):
                names = {dotted_name(inner) for target in targets for inner in ast.walk(target)}
                bound |= {name: max(node.lineno, bound.get(name, 0)) for name in names}
            case ast.Call() if EXCHANGES.fullmatch(called_function_name(node)):
                without |= {dotted_name(inner) for given in node.args for inner in ast.walk(given)}
            case _:
                pass
    last = {name: node for name, node in found.items() if name and name not in without}
    return {name: node for name, node in last.items() if bound.get(name, 0) < node.lineno}


def is_count(value: ast.expr) -> bool:
    """Return whether a value is the size of something, and of nothing that was gathered."""
    names = [last_name(each) for each in ast.walk(value) if isinstance(each, ast.Name | ast.Attribute)]
    sized = any(isinstance(each, ast.Call) and last_name(each) in COUNTS for each in ast.walk(value))
    shaped = any(isinstance(each, ast.Subscript) and last_name(each.value) == "shape" for each in ast.walk(value))
    return (sized or shaped) and not any("gather" in name or name.startswith(("all_", "global_")) for name in names)


def _is_total(call: ast.Call) -> bool:
    """Return whether a call adds up the sizes of the batches of a loader."""
    match call:
        case ast.Call(func=ast.Name(id="sum"), args=[ast.GeneratorExp(elt=elt, generators=[over])]):
            return is_count(elt) and bool(LOADERS.search(dotted_name(over.iter)))
        case _:
            return False


def _name_in(node: ast.AST) -> str:
    """Return the name of a tensor or a number, conversions left out."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in KEEPING:
            return _name_in(inner)
        case ast.Call(args=[inner, *_]) if last_name(node) in NUMBERS:
            return _name_in(inner)
        case ast.Subscript(value=inner):
            return _name_in(inner)
        case _:
            return dotted_name(node)


def _names_of(script: Script, node: ast.expr) -> set[str]:
    """Return the names of what is divided, and of what it was made from."""
    held = origins_at(script, node) if isinstance(node, ast.Name) else []
    return {_name_in(node), *map(_name_in, held)}
