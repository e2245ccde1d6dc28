"""``share-by-turns``: each rank takes every n-th element of a list, in place of a run of neighbours of it."""

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...training_script.edits import Edit
from ...training_script.syntax import last_name
from ..facts import CaseFacts
from ..types import FilePatch, Place
from .types import RecipeResult

if TYPE_CHECKING:
    from ...review.rule_context import Script

SORTS = ("sorted", "sort", "argsort", "sort_values")


class _Part(NamedTuple):
    """The run of elements that a rank takes: ``whole[rank * each : (rank + 1) * each]``."""

    whole: ast.expr
    start: ast.expr
    end: ast.expr


def share_by_turns(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the parts that are as many neighbours as each rank gets elements."""
    from ...review.rule_context import Script  # loads the model of scripts, which only a patch needs

    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        script = Script(file.text, file.path)
        edits: list[Edit] = []
        for node in ast.walk(script.source.tree):
            part = _part_at(node)
            if part and (by_turns := _by_turns(script, part)):
                between = " : " if isinstance(node, ast.Subscript) else ", "
                first, last = script.source.start(part.start), script.source.end(part.end)
                edits.append(Edit(first, last, between.join(by_turns)))
                places.append(file.place(part.start, "neighbours go to one rank"))
        if edits:
            patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def _part_at(node: ast.AST) -> _Part | None:
    match node:
        case ast.Subscript(value=whole, slice=ast.Slice(lower=ast.expr() as start, upper=ast.expr() as end, step=None)):
            return _Part(whole, start, end)
        case ast.Call(args=[whole, ast.Call(func=ast.Name(id="range"), args=[start, end], keywords=[])], keywords=[]):
            return _Part(whole, start, end)
        case _:
            return None


def _by_turns(script: "Script", part: _Part) -> list[str] | None:
    """Return start, end and step of the same number of elements in turns, or None if the part is another one."""
    match part.start, part.end:
        case (
            ast.BinOp(left=left, op=ast.Mult(), right=right),
            ast.BinOp(left=ast.BinOp(op=ast.Add(), right=ast.Constant(value=1)) as after, op=ast.Mult(), right=size),
        ) | (
            ast.BinOp(left=left, op=ast.Mult(), right=right),
            ast.BinOp(right=ast.BinOp(op=ast.Add(), right=ast.Constant(value=1)) as after, op=ast.Mult(), left=size),
        ):
            rank, count = (left, right) if ast.dump(left) == ast.dump(after.left) else (right, left)
        case _:
            return None
    if ast.dump(rank) != ast.dump(after.left) or ast.dump(count) != ast.dump(size):
        return None
    world = _number_of_ranks(script, count, part.whole)
    if world is None or not _is_rank(script, rank) or not _is_sorted(script, part.whole):
        return None
    code = script.source.one_line
    first, ranks = code(rank), code(world)
    return [first, f"{code(count) if isinstance(count, ast.Name) else f'({code(count)})'} * {ranks}", ranks]


def _is_sorted(script: "Script", whole: ast.expr) -> bool:
    """Return whether the script sorts a list: only then neighbours are surely alike."""
    made = script.names.origins(whole)
    if made and all(isinstance(each, ast.Call) and last_name(each.func) in SORTS for each in made):
        return True
    calls = (node for node in script.names.scope_of if isinstance(node, ast.Call))
    sorts = (call.func.value for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "sort")
    return any(ast.dump(held) == ast.dump(whole) for held in sorts)


def _is_rank(script: "Script", node: ast.expr) -> bool:
    from ...training_script.model.keys import rank_in

    key = script.evaluated.value(node)
    rank = rank_in(key) if key is not None else None
    return rank is not None and key is rank


def _number_of_ranks(script: "Script", count: ast.expr, whole: ast.expr) -> ast.expr | None:
    """Return the number of ranks by which the length of the whole is divided, if it means the same at the part."""
    origins = script.names.origins(count)
    match origins:
        case [
            ast.BinOp(left=ast.Call(func=ast.Name(id="len"), args=[divided]), op=ast.FloorDiv(), right=world) as made
        ] if ast.dump(divided) == ast.dump(whole) and script.is_world_size(world):
            names = [node for node in ast.walk(world) if isinstance(node, ast.Name)]
            here = script.names.enclosing_function(count) is script.names.enclosing_function(made)
            once = all(len(script.names.bindings(name)) == 1 for name in [*names, *_names_of(whole)])
            return world if here and once else None
        case _:
            return None


def _names_of(node: ast.expr) -> list[ast.Name]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Name)]
