"""The handler that takes an error, by the names of the classes."""

import ast
import builtins
from collections.abc import Sequence

from ..syntax import last_name


def caught_by(handlers: Sequence[ast.ExceptHandler]) -> tuple[str, ...]:
    """Return the classes of errors that handlers take; none if they take any."""
    names: list[str] = []
    for handler in handlers:
        classes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        names += [last_name(each) if each else "" for each in classes]
    return tuple(names) if all(names) else ()


def error_of(raised: ast.expr | None) -> str:
    """Return the class of an error that is raised, or an empty string if the statement does not name it."""
    called = raised.func if isinstance(raised, ast.Call) else raised
    name = last_name(called) if called else ""
    return name if name[:1].isupper() else ""


def may_take(caught: Sequence[str], error: str) -> bool:
    """Return whether handlers of these classes may take an error of a class."""
    if not caught or not error:
        return True
    raised = getattr(builtins, error, None)
    if not isinstance(raised, type):
        return True  # it may be made from any class
    bases = {base.__name__ for base in raised.__mro__}
    return any(name in bases or _has_another_name(name) for name in caught)


def _has_another_name(name: str) -> bool:
    """Return whether a name is no class by its look, or a builtin one by another name."""
    known = getattr(builtins, name, None)
    return not name[:1].isupper() or (isinstance(known, type) and known.__name__ != name)
