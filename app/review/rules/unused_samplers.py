"""DW245: DistributedSamplers that no loader gets."""

import ast
from collections.abc import Iterator

from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, call_argument, last_name
from ...training_script.torch_classes import SAMPLER_CLASSES
from ..epoch_loops import is_call_of
from ..rule_context import Script, Violation

NO_LOADERS = {"len", "print", "str", "isinstance", "type", "RandomSampler", "SequentialSampler"}


def check(script: Script) -> list[Violation]:
    """DW245: return the samplers whose name is bound to something else, or forgotten, before anything reads it."""
    if not script.mentions("DistributedSampler"):
        return []
    return [
        Violation(
            line=node.lineno,
            column_bytes=node.value.col_offset + 1,
            end_line=node.end_lineno or node.lineno,
            message=f"{problem}: every rank goes through all of the data",
            confidence=0.8,
        )
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and is_call_of(script, node.value, SAMPLER_CLASSES)
        and (name := _bound(node))
        and (problem := _problem(script, node, name))
        and _is_loaded(script, node.value)
    ]


def _is_loaded(script: Script, sampler: ast.Call) -> bool:
    """Return whether something else than a sampler gets the data of a sampler, as far as they have a name."""
    data = call_argument(sampler, "dataset", 0)
    if not isinstance(data, ast.Name):
        return True
    calls = (each for each in nodes_below(script.source.tree) if isinstance(each, ast.Call))
    taking = (
        each
        for each in calls
        if any(_is_name(given, data.id) for given in (*each.args, *(pair.value for pair in each.keywords)))
    )
    return any(
        last_name(each.func) not in NO_LOADERS and not is_call_of(script, each, SAMPLER_CLASSES) for each in taking
    )


def _problem(script: Script, made: ast.Assign, name: str) -> str:
    """Return why no loader gets a sampler, an empty text if one may."""
    for later in _behind(script, made):
        replaced = later.value if isinstance(later, ast.Assign) and _bound(later) == name else None
        if _mentions(replaced or later, name):
            return ""
        if replaced is not None:
            return f"this sampler is replaced in line {later.lineno} before anything uses it"
    function = script.names.enclosing_function(made)
    if isinstance(function, FUNCTIONS) and sum(1 for _ in _mentions_in(function, name)) == 1:
        return "nothing uses this sampler"
    return ""


def _behind(script: Script, stmt: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements that surely come after one, as far as none of them is in a loop with it."""
    parent = script.source.parents.get(stmt)
    while parent is not None:
        block = script.source.block_of(stmt)
        yield from block[block.index(stmt) + 1 :] if block else []
        if not isinstance(parent, ast.If | ast.With):
            return
        stmt, parent = parent, script.source.parents.get(parent)


def _bound(stmt: ast.stmt) -> str:
    """Return the name that a statement binds, if it is an assignment to one name."""
    match stmt:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return ""


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _mentions(node: ast.AST, name: str) -> bool:
    return any(True for _ in _mentions_in(node, name))


def _mentions_in(node: ast.AST, name: str) -> Iterator[ast.Name]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id == name)
