"""The patch that asks for the default of an argument when a function is called."""

import ast

from ...training_script.syntax import FUNCTIONS, Function
from ..rule_context import Patch, Script, no_patch

FIX = "ask-when-called"
BY_HAND = "ask for it inside of the functions that read it"


def ask_in_function(script: Script, function: Function, default: ast.expr) -> Patch:
    """Return the patch that makes None the default of an argument and asks in the first statement of a function."""
    source, argument = script.source, _argument_of(function, default)
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    first = body[0] if body else None
    if argument is None or first is None or first.lineno == function.lineno or not source.alone(first):
        return no_patch(FIX, BY_HAND)
    decorators = first.decorator_list if isinstance(first, (*FUNCTIONS, ast.ClassDef)) else []
    above = decorators[0].lineno if decorators else first.lineno
    indent = source.indent(first.lineno)
    lines = (f"if {argument} is None:", f"{source.one_level(indent)}{argument} = {source.one_line(default)}")
    edits = [source.replace(default, "None"), *(source.insert_line(above, line, indent) for line in lines)]
    return Patch(id=FIX, safety="unsafe", why_unsafe="a caller that passes None gets the default", edits=edits)


def _argument_of(function: Function, default: ast.expr) -> str | None:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [*zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [(arg, value) for arg, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value]
    return next((arg.arg for arg, value in pairs if value is default), None)
