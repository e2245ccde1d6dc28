"""DW487: lists of the layers that FSDP wraps which name one class twice."""

import ast
import re
from collections.abc import Iterator

from ...training_script.nodes import nodes_below
from ...training_script.syntax import last_name
from ..rule_context import Script, Violation

POLICY = re.compile(r"\w*(?:wrap\w*polic|WrapPolicy|wrapper_config)\w*")
CLASSES = {"transformer_layer_cls", "module_classes", "layer_cls", "transformer_cls_names_to_wrap"}
PARTIAL = "partial"


def check(script: Script) -> list[Violation]:
    """Return the names that a list of layers to wrap has had before."""
    if "polic" not in script.source.text.lower():
        return []
    found: list[Violation] = []
    for listed in _lists(script):
        seen: set[str] = set()
        for each in listed.elts:
            name = ast.unparse(each) if isinstance(each, ast.Name | ast.Attribute) else ""
            if name in seen and name[name.rfind(".") + 1 :][:1].isupper():
                found.append(
                    Violation(
                        line=each.lineno,
                        column_bytes=each.col_offset + 1,
                        end_line=each.end_lineno or each.lineno,
                        message=f"`{name}` is in this list of layers twice: the layer that is meant here is not "
                        "wrapped, and FSDP gathers its parameters with those of the module around it",
                        confidence=0.8,
                    )
                )
            seen.add(name)
    return found


def _lists(script: Script) -> Iterator[ast.List | ast.Set | ast.Tuple]:
    """Yield the lists of classes that policies for wrapping get, each once."""
    known: set[int] = set()
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.Call):
            continue
        of_policy = any(POLICY.fullmatch(name) for name in _names_of(node))
        given = [*node.args, *(each.value for each in node.keywords)] if of_policy else []
        given += [each.value for each in node.keywords if each.arg in CLASSES]
        for value in given:
            for each in _written(script, value):
                if id(each) not in known:
                    known.add(id(each))
                    yield each


def _names_of(call: ast.Call) -> Iterator[str]:
    """Yield the name of a function that is called, and of the one that ``partial`` gets."""
    called = [call.func, *call.args[:1]] if last_name(call.func) == PARTIAL else [call.func]
    yield from (last_name(each) for each in called if isinstance(each, ast.Name | ast.Attribute))


def _written(script: Script, value: ast.expr) -> Iterator[ast.List | ast.Set | ast.Tuple]:
    """Yield the list that an argument is, or that its name has been given."""
    match value:
        case ast.List() | ast.Set() | ast.Tuple():
            yield value
        case ast.Call(func=ast.Name(id="set" | "frozenset" | "list" | "tuple"), args=[inner]):
            yield from _written(script, inner)
        case ast.Name():
            bound = script.names.bindings(value)
            for each in bound if len(bound) == 1 else ():
                if each.value is not None and not isinstance(each.value, ast.Name):
                    yield from _written(script, each.value)
        case _:
            pass
