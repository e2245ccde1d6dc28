"""Calls that may raise on one rank alone, for a handler that takes some classes of errors."""

import ast

from ...training_script.model.sequences import Site
from ...training_script.syntax import Function, dotted_name, last_name, nodes_of_body
from ..rule_context import Script

# Errors that a record of the data raises, and not the memory or the network.
OF_DATA = {"ValueError", "KeyError", "IndexError", "JSONDecodeError", "UnicodeDecodeError", "EOFError"}
# Calls before a collective that raise on all ranks or on none.
WITHOUT_ERRORS = ("dist.", "torch.distributed.", "print", "log", "time.", "len", "range", "enumerate", "torch.cuda.")


def taken_by(attempt: ast.Try, handler: Site) -> ast.expr | None:
    """Return the classes of errors that a handler of a ``try`` takes, None for all."""
    return next((each.type for each in attempt.handlers if each.lineno == handler.line), None)


def are_of_data(taken: ast.expr | None) -> bool:
    """Return whether a handler takes only errors that a record of the data raises."""
    return taken is not None and _names(taken) <= OF_DATA


def may_raise(
    script: Script, body: list[ast.stmt], place: tuple[int, int], waits: set[Site], taken: ast.expr | None
) -> bool:
    """Return whether statements call something before a place that may raise such an error on one rank alone.

    ``waits``: the calls in which ranks wait for each other, and raise together.
    """
    calls = (node for stmt in body for node in ast.walk(stmt) if isinstance(node, ast.Call))
    together = {(site.line, site.column) for site in waits}
    begins = [(call, (call.lineno, call.col_offset + 1)) for call in calls if not _is_around(call, place)]
    before = [call for call, at in begins if at < place and at not in together]
    risky = (call for call in before if not dotted_name(call.func).startswith(WITHOUT_ERRORS))
    if are_of_data(taken):
        risky = (call for call in risky if not _is_of_torch(script, call))
    return any(not _handles(script.names.function(call), taken) for call in risky)


def _names(errors: ast.expr | None) -> set[str]:
    """Return the classes of errors that a handler takes, none for all."""
    listed = errors.elts if isinstance(errors, ast.Tuple) else [errors] if errors else []
    return {last_name(each) for each in listed}


def _is_of_torch(script: Script, call: ast.Call) -> bool:
    """Return whether a call computes with tensors: it fails by their shapes, or by nothing that is in the data."""
    return script.names.qualified(call.func).startswith("torch.") or last_name(call.func) in ("zero_grad", "step")


def _is_around(call: ast.Call, place: tuple[int, int]) -> bool:
    """Return whether a place is among the arguments of a call, which are computed first."""
    end = call.end_lineno or call.lineno, call.end_col_offset or 0
    return (call.lineno, call.col_offset + 1) < place <= end


def _handles(function: Function | None, taken: ast.expr | None) -> bool:
    """Return whether a function takes the errors of a handler around its call itself."""
    errors = _names(taken)
    for node in nodes_of_body(function) if function and errors else ():
        for handler in node.handlers if isinstance(node, ast.Try) else ():
            raises = any(isinstance(each, ast.Raise) for each in nodes_of_body(handler))
            if not raises and (handler.type is None or errors <= _names(handler.type)):
                return True
    return False
