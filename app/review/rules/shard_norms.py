"""DW303: gradients of FSDP that each rank clips by the norm of its own shards, by a function of its own."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below, walk
from ...training_script.syntax import FUNCTIONS, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node
from .fsdp_order import FSDP1, FSDP2, check_clip

LOCAL_PART = ("to_local", "_local_tensor")
MEASURES = {"norm", "vector_norm", "sum", "square", "get_total_norm", "_foreach_norm"}
# What makes the norms of all ranks one, under any name.
COMBINES = re.compile(r"reduce|gather|full_tensor|broadcast|get_total_norm|redistribute")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the clipping of gradients by the norm of one rank's shard, that of torch and that of a function here."""
    yield from check_clip(script, run)
    yield from _by_hand(script, run)


def _by_hand(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the norms of shards by which a function scales the gradients, and which nothing sums over the ranks."""
    if not any(run.of(*FSDP1, *FSDP2)) or not any(map(script.mentions, LOCAL_PART)):
        return
    below = nodes_below(script.source.tree)
    functions = [node for node in below if isinstance(node, FUNCTIONS)]
    takers = {each.name for each in functions if _takes_part(each, set())}
    scaling = [each for each in functions if _reads_gradients(each) and _takes_part(each, takers)]
    if not scaling:
        return
    combining = {each for each in functions if COMBINES.search(ast.unparse(each))}
    own = [each for each in scaling if each not in combining]
    measures = (MEASURES - {each.name for each in combining}) | {each.name for each in own if _gives_norm(each)}
    for each in own:
        measured = _measures(each, measures)
        scaled = next((node for node in walk(each) if _scales(node, set(measured))), None)
        if scaled is not None and measured:
            first = min(measured.values(), key=lambda node: node.lineno)
            line = getattr(scaled, "lineno", first.lineno)
            yield violation_at_node(
                first,
                "this norm is of the shards of one rank: each rank scales its gradients by another factor",
                0.8,
                related=[RelatedPlace(path=script.source.path, line=line, message="scaled here")],
            )


def _takes_part(function: ast.AST, takers: set[str]) -> bool:
    """Return whether a function takes the local part of a tensor, itself or by one of these functions."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr in LOCAL_PART)
        or (isinstance(node, ast.Call) and last_name(node.func) in takers)
        for node in walk(function)
    )


def _reads_gradients(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in walk(function))


def _gives_norm(function: ast.AST) -> bool:
    """Return whether a function that reads local parts of gradients returns their norm, or a sum of squares."""
    measured = _measures(function, MEASURES)
    returned = [node.value for node in walk(function) if isinstance(node, ast.Return) and node.value]
    inside = [node for value in returned for node in walk(value)]
    return any(isinstance(node, ast.Name) and node.id in measured for node in inside) or any(
        isinstance(node, ast.Call) and last_name(node.func) in MEASURES for node in inside
    )


def _measures(function: ast.AST, measures: set[str]) -> dict[str, ast.Assign | ast.AugAssign]:
    """Return the names of what follows from a norm or a sum of squares, each with the first such statement."""
    found: dict[str, ast.Assign | ast.AugAssign] = {}
    bound = (each for each in walk(function) if isinstance(each, ast.Assign | ast.AugAssign))
    for node in sorted(bound, key=lambda each: each.lineno):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        inside = list(walk(node.value))
        if any(isinstance(each, ast.Call) and last_name(each.func) in measures for each in inside) or any(
            isinstance(each, ast.Name) and each.id in found for each in inside
        ):
            found |= {name: node for name in names if name not in found}
    return found


def _scales(node: ast.AST, measured: set[str]) -> bool:
    """Return whether a statement multiplies or divides something in place by one of these names."""
    match node:
        case ast.Call(func=ast.Attribute(attr="mul_" | "div_"), args=[factor]):
            pass
        case ast.AugAssign(op=ast.Mult() | ast.Div(), value=factor):
            pass
        case _:
            return False
    return any(isinstance(each, ast.Name) and each.id in measured for each in walk(factor))
