"""DW445: elements at places that each rank chooses for itself, which a collective adds up one by one."""

import ast
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import parts
from ...training_script.model.reach import Run
from ...training_script.syntax import last_name
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .unequal_parts import sent

CHOOSES = {"topk", "argsort", "sort", "nonzero", "multinomial"}  # by the values of a tensor
TAKES = {"gather": 1, "take": 0, "index_select": 1, "take_along_dim": 0}  # methods, with the place of the index


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reductions of elements that each rank takes from the places of its own largest values."""
    for reach, fact, _ in sent(run, "all_reduce", "reduce"):
        if not script.is_here(reach) or not fact.node.args:
            continue
        for made in (fact.node.args[0], *origins_at(script, fact.node.args[0])):
            index = _index(made)
            chosen = _chosen(script, index) if index is not None else None
            if chosen is not None:
                yield from violation_at(
                    script,
                    reach,
                    f"each rank takes these elements from places of its own (line {chosen.lineno}): what is added up "
                    "are elements of different places",
                    0.75,
                    related=[RelatedPlace(path=script.source.path, line=chosen.lineno, message="chosen here")],
                )
                break


def _index(made: ast.AST) -> ast.expr | None:
    """Return the places from which an expression takes elements."""
    match made:
        case ast.Subscript(slice=ast.Name() | ast.Attribute() as index):
            return index
        case ast.Call(func=ast.Attribute(attr=name), args=args) if name in TAKES and len(args) > TAKES[name]:
            return args[TAKES[name]]
        case _:
            return None


def _chosen(script: Script, index: ast.expr) -> ast.Call | None:
    """Return the call that chooses places by the values of a tensor that no collective has filled."""
    for made in (index, *origins_at(script, index)):
        while isinstance(made, ast.Attribute | ast.Subscript):
            made = made.value
        if not isinstance(made, ast.Call) or last_name(made.func) not in CHOOSES:
            continue
        of = made.func.value if isinstance(made.func, ast.Attribute) else None
        used = [each for each in (of, *made.args) if each is not None]
        keys = [key for each in used if (key := script.evaluated.value(each)) is not None]
        if not any(part.op in SAME for key in keys for part in parts(key)):
            return made
    return None
