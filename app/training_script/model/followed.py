"""Functions and objects of the program, alone and in sequences, as values of which the steps are known."""

import ast

from msgspec.structs import replace

from ..syntax import FUNCTIONS as DEFINITIONS
from .library_calls import FUNCTIONS
from .values import Bound, ClassRef, Either, FunctionRef, Instance, Library, Partial, Table, Value, is_elements

FOLLOWED = (FunctionRef, Bound, Instance, Partial, ClassRef)
MOST_ELEMENTS = 12  # of a sequence that is known element by element


def is_followed(obj: object) -> bool:
    """Return whether something can be called, or holds what can be called, with steps that are known."""
    if isinstance(obj, Either):
        return True
    if is_elements(obj):
        return all(_holds_followed(each) for each in obj)
    if isinstance(obj, Library):
        return obj.name in FUNCTIONS and bool(FUNCTIONS[obj.name].event)
    return isinstance(obj, FOLLOWED)


def known_functions(iterable: Value) -> "Either | tuple[Value, ...] | None":
    """Return the functions or objects that a loop goes over, None if it goes over something else."""
    held = iterable.obj.names if isinstance(iterable.obj, Table) else iterable.obj
    if iterable.key.op == "enumerate" and is_elements(held):
        inner = known_functions(held[0])
        return inner and _numbered(inner)
    known = held and is_followed(held) and (isinstance(held, Either) or is_elements(held))
    return held if known else None


def _numbered(held: "Either | tuple[Value, ...]") -> "Either | tuple[Value, ...]":
    """Return functions or objects, each with a number."""
    if isinstance(held, Either):
        then, other = (
            replace(side, obj=_numbered(side.obj)) if isinstance(side.obj, Either) or is_elements(side.obj) else side
            for side in (held.then, held.other)
        )
        return held._replace(then=then, other=other)
    return tuple([replace(each, obj=(Value(each.key), each)) for each in held])


def _holds_followed(element: Value) -> bool:
    if is_elements(element.obj):
        return any(_holds_followed(each) for each in element.obj)
    return is_followed(element.obj)


def collects(node: ast.AST) -> bool:
    """Return whether a method only adds one of its arguments to a sequence that its object holds."""
    body = node.body if isinstance(node, DEFINITIONS) else []
    statements = [each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    match statements:
        case [
            ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Attribute(value=ast.Name()), attr="append"), args=[ast.Name()]
                )
            ),
            *rest,
        ]:
            return all(isinstance(each, ast.Return) and isinstance(each.value, ast.Name | None) for each in rest)
        case _:
            return False


def with_more(held: object, values: "list[Value]", *, extends: bool) -> object:
    """Return a sequence of functions or objects to which ``append`` or ``extend`` adds more; None for others."""
    if isinstance(held, Either):
        sides = [with_more(side.obj, values, extends=extends) for side in (held.then, held.other)]
        both = all(side is not None for side in sides)
        return (
            held._replace(then=replace(held.then, obj=sides[0]), other=replace(held.other, obj=sides[1]))
            if both
            else None
        )
    added = values[0].obj if values and extends else tuple(values)
    if not (added and is_elements(held) and is_elements(added)):
        return None
    more: tuple[Value, ...] = (*held, *added)
    return more if len(more) <= MOST_ELEMENTS and is_followed(more) else None
