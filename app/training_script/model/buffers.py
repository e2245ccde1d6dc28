"""Buffers of models: DDP sends them in each forward pass, and without any that pass does not communicate."""

import ast
import re

from ..syntax import last_name
from .values import ClassRef, FunctionRef, Library, Value

MODULES = "torch.nn."
WITH_BUFFERS = re.compile(
    r"\w*BatchNorm(?:\dd)?|(?:Lazy)?InstanceNorm\dd|spectral_norm|register_buffer|Buffer|FakeQuantize"
)
WITHOUT = ("torch.", "numpy.", "math.", "einops.", "typing.", "logging.", "copy.", "collections.", "functools.")
MOST_CLASSES = 60


def has_no_buffers(cls: ClassRef) -> bool:
    """Return whether a model surely has no buffers: neither its class nor any that it may make registers one."""
    pending: list[ClassRef | FunctionRef] = [cls]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if id(each.node) in seen:
            continue
        seen.add(id(each.node))
        if len(seen) > MOST_CLASSES:
            return False
        if isinstance(each, ClassRef):
            bases = [base.obj for base in each.bases]
            if not all(isinstance(base, ClassRef) or _is_plain(base) for base in bases):
                return False
            pending += [base for base in bases if isinstance(base, ClassRef)]
        for call in (node for node in ast.walk(each.node) if isinstance(node, ast.Call)):
            made = _made(call.func, each)
            if WITH_BUFFERS.fullmatch(last_name(call.func)) or (isinstance(made, Library) and not _is_plain(made)):
                return False
            if isinstance(made, ClassRef | FunctionRef):
                pending.append(made)
    return True


def _made(func: ast.expr, within: ClassRef | FunctionRef) -> object:
    """Return the class or function that a call names, as far as the module of the caller knows it."""
    while isinstance(func, ast.Attribute):
        func = func.value
    value: Value | None = within.module.env.get(func.id) if isinstance(func, ast.Name) else None
    return value.obj if value else None


def _is_plain(obj: object) -> bool:
    """Return whether something of a library is no module with buffers of its own."""
    return isinstance(obj, Library) and f"{obj.name}.".startswith(WITHOUT)
