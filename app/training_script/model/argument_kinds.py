"""Kinds of arguments: what a function does with a value follows from its kind."""

from collections.abc import Iterable
from typing import Any

from .followed import is_followed
from .keys import DIFFERS, TOUCHED
from .values import Bound, Either, FunctionRef, Instance, Library, Method, Partial, Record, Value, is_elements


def kind(value: Value) -> tuple[Any, ...]:
    obj = value.obj
    identity: object = len(obj) if is_elements(obj) else obj if isinstance(obj, Library) else id(obj)
    if isinstance(obj, Instance):
        identity = id(obj.cls)
    elif isinstance(obj, FunctionRef):
        identity = obj.node
    elif isinstance(obj, Bound):
        identity = (obj.function.node, id(obj.owner.key))
    elif isinstance(obj, Method):
        identity = "method"
    elif isinstance(obj, Either):
        identity = (id(obj.test), kind(obj.then), kind(obj.other))
    elif isinstance(obj, Partial):
        identity = (kind(obj.function), *map(kind, obj.values), *map(kind, obj.named.values()))
    elif is_elements(obj) and is_followed(obj):
        identity = tuple(map(kind, obj))
    elif isinstance(obj, Record):
        identity = tuple([(name, kind(field)) for name, field in obj.fields.items()])
    key = value.key if value.key.spread & DIFFERS or value.key.is_constant or value.key.op == "world" else None
    return id(key) if key else None, bool(value.key.spread & TOUCHED), value.facts, identity


def flags_of(values: Iterable[Value]) -> list[Any]:
    """Return which arguments are True, False or None: they decide what a function does more than others."""
    return [
        (value.key.value,) if value.key.is_constant and isinstance(value.key.value, bool | None) else ()
        for value in values
    ]
