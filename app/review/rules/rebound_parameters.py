"""DW421: what a loop computes of reduced parameters or gradients, bound to a name of the loop that nothing reads."""

import ast
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below, walk
from ...training_script.syntax import FUNCTIONS, dotted_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

LISTS = {"parameters", "named_parameters", "buffers", "named_buffers"}
FILLS = {"all_reduce", "reduce", "broadcast"}
HELD = {"data", "grad"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield such assignments behind a collective of the same round."""
    if run.function is not None or not run.distributed:
        return
    for loop in nodes_below(script.source.tree):
        if not isinstance(loop, ast.For) or not _goes_over_parameters(loop):
            continue
        targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        same = targets | set(_aliases(loop, targets))
        reduced: ast.Call | None = None
        for node in sorted(walk(loop), key=lambda each: getattr(each, "lineno", 0)):
            if isinstance(node, ast.Call) and collective_name(node, script.names) in FILLS:
                reduced = node
            elif isinstance(node, ast.Assign) and (name := _bound(node)) in same and reduced is not None:
                computed = _computes(node.value) and _goes_on(loop, node)
                if computed and not _is_read(script, loop, node, name):
                    yield violation_at_node(
                        node,
                        f"this binds the name `{name}`, and writes nothing into the tensor of the model: it "
                        f"has what {collective_name(reduced, script.names)} (line {reduced.lineno}) has left there",
                        0.85,
                        related=[RelatedPlace(path=script.source.path, line=reduced.lineno, message="the collective")],
                    )


def _goes_over_parameters(loop: ast.For) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LISTS
        for node in ast.walk(loop.iter)
    )


def _aliases(loop: ast.For, targets: set[str]) -> Iterator[str]:
    """Yield the names that a round binds to the tensor of a parameter, or to its gradient."""
    for node in walk(loop):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(attr=attr) as held) if attr in HELD:
                if dotted_name(held).partition(".")[0] in targets:
                    yield name
            case _:
                pass


def _bound(node: ast.AST) -> str:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return ""


def _computes(value: ast.expr) -> bool:
    """Return whether an expression computes a new tensor."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in ("div", "mul", "clone", "mean") or _computes(value.func.value)
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div | ast.Mult)


def _goes_on(loop: ast.For, stmt: ast.Assign) -> bool:
    """Return whether an assignment is in a statement of the loop itself, in no function of it."""
    return not any(isinstance(each, FUNCTIONS) and stmt in ast.walk(each) for each in ast.walk(loop))


def _is_read(script: Script, loop: ast.For, stmt: ast.Assign, name: str) -> bool:
    """Return whether something reads a name behind an assignment, or in another function."""
    around = script.names.enclosing_function(loop) or script.source.tree
    end = stmt.end_lineno or stmt.lineno
    after = [
        node
        for node in ast.walk(around)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > end
    ]
    return any(
        node.lineno <= (loop.end_lineno or loop.lineno) or not _is_set_again(around, node, end) for node in after
    )


def _is_set_again(around: ast.AST, read: ast.Name, since: int) -> bool:
    """Return whether a name has got another value between a line and where it is read."""
    return any(
        isinstance(node, ast.Name)
        and node.id == read.id
        and isinstance(node.ctx, ast.Store)
        and (since < node.lineno <= read.lineno)
        for node in ast.walk(around)
    )
