"""Kinds of arguments: what a function does with a value follows from its kind."""

from collections.abc import Iterable
from typing import Any

from .followed import is_followed
from .keys import DIFFERS, NEW_GROUP, TOUCHED, Key
from .lengths import length
from .members import PAIR
from .values import Bound, Either, FunctionRef, Instance, Library, Method, Partial, Record, Value, is_elements

SIZED = {"call", "item", "rows", "sequence", "range"}  # values whose number of elements may follow


CALLED = (FunctionRef, Bound, Partial)


def kind(value: Value) -> tuple[Any, ...]:
    key, facts, obj = value.key, value.facts, value.obj
    followed = key.op in ("constant", "world") or (key.op == "shared" and key.args[0] == NEW_GROUP)
    known = key if followed or key.differs_by & DIFFERS else None
    if known is None and key.op in SIZED:
        known = length(key, PAIR[0])
    return known, key.differs_by & TOUCHED, facts, obj if obj is None else _identity(obj)


def _identity(obj: object) -> object:
    """Return what tells one object that a function may get from another, for what the function does."""
    if type(obj) is Method:
        return "method"
    match obj:
        case Instance(cls):
            return id(cls)
        case Library():
            return obj
        case FunctionRef():
            return (obj.node, obj.wraps.node) if obj.wraps else obj.node
        case Bound(function, owner):
            return function.node, id(owner.key)
        case Either(test, then, other):
            return id(test), kind(then), kind(other)
        case Partial(function, _, values, named):
            return kind(function), *map(kind, values), *map(kind, named.values())
        case Record(fields=fields):
            return tuple([(name, kind(field)) for name, field in fields.items()])
        case _ if is_elements(obj):
            return tuple(map(kind, obj)) if is_followed(obj) else len(obj)
        case _:
            return id(obj)


def flags_of(values: Iterable[Value]) -> tuple[Any, ...]:
    """Return which arguments are True, False, None or functions: they decide what a function does more than others."""
    return tuple([_flag(value) for value in values])


def _flag(value: Value) -> tuple[Any, ...]:
    if value.obj is not None and type(value.obj) in CALLED:
        return (_identity(value.obj),)
    return (value.key.value,) if _is_flag(value.key) else ()


def _is_flag(key: Key) -> bool:
    return key.op == "constant" and (key.value is None or type(key.value) is bool)
