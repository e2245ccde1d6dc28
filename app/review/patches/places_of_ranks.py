"""The patch that gives a list one place for each rank."""

import ast

from ...training_script.nodes import walk
from ..origins import origins_at
from ..rule_context import Patch, Script, no_patch
from .torch_names import distributed_module

PLACES = "place-for-each-rank"
BY_HAND = "make the list with dist.get_world_size() elements"
RECEIVED = "scatter_object_output_list"


def places_of_ranks(script: Script, call: ast.Call, name: str, given: ast.expr | None) -> Patch:
    """Return the patch that makes the list of an argument with as many elements as the call needs."""
    made = origins_at(script, given) if given is not None else []
    if len(made) != 1:
        return no_patch(PLACES, BY_HAND)
    source = script.source
    if isinstance(made[0], ast.List) and not made[0].elts and name == RECEIVED:
        return Patch(id=PLACES, safety="safe", edits=[source.replace(made[0], "[None]")])
    module, count = distributed_module(script, call), _count(made[0])
    if count is None or not module:
        return no_patch(PLACES, BY_HAND)
    return Patch(
        id=PLACES,
        safety="unsafe",
        why_unsafe="what else goes through the list gets another number of elements",
        edits=[source.replace(count, f"{module}.get_world_size()")],
    )


def _count(made: ast.AST) -> ast.expr | None:
    """Return the number of elements of a list that all are made alike."""
    match made:
        case ast.BinOp(op=ast.Mult(), left=ast.List(elts=[_]), right=count):
            return count
        case ast.BinOp(op=ast.Mult(), left=count, right=ast.List(elts=[_])):
            return count
        case ast.ListComp(
            elt=element,
            generators=[
                ast.comprehension(
                    target=ast.Name(id=counted),
                    iter=ast.Call(func=ast.Name(id="range"), args=[count], keywords=[]),
                    ifs=[],
                )
            ],
        ) if not any(isinstance(each, ast.Name) and each.id == counted for each in walk(element)):
            return count
        case _:
            return None
