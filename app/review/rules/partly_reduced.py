"""DW486: statistics of a batch of which a method reduces some over the ranks and keeps the others of its own."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, dotted_name, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

REDUCES = re.compile(r"reduce|gather|broadcast|sync", re.IGNORECASE)
FOLDS = {"add_", "lerp_", "mul_", "copy_"}  # into what an object keeps


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield what a method folds into an attribute of this rank's batch, where it folds others in of all ranks."""
    if run.function is not None or not run.distributed:
        return
    if not all(map(script.mentions, ("all_reduce", "register_buffer"))):
        return
    for cls in nodes_below(script.source.tree):
        if isinstance(cls, ast.ClassDef) and (buffers := _buffers(cls)):
            for method in cls.body:
                if isinstance(method, FUNCTIONS):
                    yield from _in_method(script, method, buffers)


def _buffers(cls: ast.ClassDef) -> set[str]:
    """Return the attributes that a class registers as buffers, which belong to the state of the model."""
    calls = (node for node in ast.walk(cls) if isinstance(node, ast.Call) and last_name(node) == "register_buffer")
    names = (each.args[0] for each in calls if each.args)
    return {f"self.{each.value}" for each in names if isinstance(each, ast.Constant)}


def _in_method(
    script: Script, method: ast.FunctionDef | ast.AsyncFunctionDef, buffers: set[str]
) -> Iterator[Violation]:
    calls = [node for node in ast.walk(method) if isinstance(node, ast.Call)]
    reductions = [each for each in calls if REDUCES.search(last_name(each))]
    sums = [each for each in reductions if last_name(each) == "all_reduce" and each.args]
    given = {each.arg for each in method.args.args[1:]}
    reduced = _made_of(method, {name for each in reductions for name in _names(each)})
    own = _made_of(method, given) - reduced
    folds = [(node, attribute, names) for node in ast.walk(method) for attribute, names in _folded(node)]
    shared = [(node, attribute) for node, attribute, names in folds if names & reduced]
    if not sums or not shared or len(sums) != len(reductions):
        return
    for node, attribute, names in folds:
        if (
            attribute in buffers
            and isinstance(node, ast.expr | ast.stmt)
            and names & own
            and not names & reduced
            and all(attribute != each for _, each in shared)
        ):
            line = sums[0].lineno
            yield violation_at_node(
                node,
                f"`{attribute}` takes the sum of this rank's batch, and `{shared[0][1]}` that of all ranks "
                f"(line {line}): reduce both, as what follows from them differs on each rank",
                0.8,
                related=[RelatedPlace(path=script.source.path, line=line, message="reduced here")],
            )


def _made_of(method: ast.AST, names: set[str]) -> set[str]:
    """Return these names and those that a method assigns something made of them."""
    found, stmts = set(names), [node for node in ast.walk(method) if isinstance(node, ast.Assign)]
    for stmt in sorted(stmts, key=lambda each: each.lineno):
        if _names(stmt.value) & found:
            found |= {each.id for target in stmt.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return found - {"self"}


def _names(node: ast.AST) -> set[str]:
    """Return the names of variables in an expression; those of functions and modules that are called are not."""
    called = {id(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and id(each) not in called} - {
        "self",
        "dist",
    }


def _folded(node: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """Yield the attribute that a statement changes by what it held before, with the names that go in."""
    match node:
        case ast.Call(func=ast.Attribute(value=target, attr=name), args=[value, *_]) if name in FOLDS - {"copy_"}:
            attribute = _attribute(target)
        case ast.Assign(targets=[ast.Attribute() as target], value=value) if ast.unparse(target) in ast.unparse(value):
            attribute = _attribute(target)
        case ast.AugAssign(target=ast.Attribute() as target, op=ast.Add(), value=value):
            attribute = _attribute(target)
        case _:
            return
    if attribute:
        yield attribute, _names(value)


def _attribute(target: ast.expr) -> str:
    """Return the attribute of the object that is changed in place, also by one change after another."""
    while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr in FOLDS:
        target = target.func.value
    if isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    name = dotted_name(target)
    return name if name.startswith("self.") else ""
