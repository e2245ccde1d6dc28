"""Loops that every rank runs equally often: over a loader whose sampler gives each rank as many samples."""

import ast
from typing import TYPE_CHECKING

from .name_resolution import Names
from .syntax import call_argument, called_function_name
from .torch_classes import LOADER_CLASSES, SAMPLER_CLASSES

if TYPE_CHECKING:
    from .line_queries import LineQueries, Loop

AROUND = ("enumerate", "tqdm")
SAMPLER_PLACE = 3


def has_equal_rounds(source: "LineQueries", loop: "Loop") -> bool:
    """Return whether a loop surely has as many rounds on every rank, if none leaves it early."""
    if not isinstance(loop, ast.For):
        return False
    iterated = loop.iter
    while isinstance(iterated, ast.Call) and called_function_name(iterated) in AROUND and iterated.args:
        iterated = iterated.args[0]
    names = Names(source.source)
    made = names.origins(iterated)
    return bool(made) and all(_is_loader_with_equal_parts(names, each) for each in made)


def _is_loader_with_equal_parts(names: Names, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or names.qualified(node.func) not in LOADER_CLASSES:
        return False
    sampler = call_argument(node, "sampler", SAMPLER_PLACE)
    samplers = names.origins(sampler) if sampler else []
    return bool(samplers) and all(
        isinstance(each, ast.Call) and names.qualified(each.func) in SAMPLER_CLASSES for each in samplers
    )
