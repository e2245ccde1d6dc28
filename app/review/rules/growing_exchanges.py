"""DW457: lists that grow in each step and that each step sends as a whole."""

import ast
from collections.abc import Iterator

from ...training_script.model.reach import Reach, Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import dotted_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

SENT = {"torch.distributed.all_gather_object": 1, "torch.distributed.gather_object": 0}
EMPTIES = ("clear", "pop", "popleft")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the exchanges of a list of an object to which each round adds, and which nothing empties."""
    for reach, fact in run.of(*SENT):
        place = SENT[fact.name]
        name = dotted_name(fact.node.args[place]) if len(fact.node.args) > place else ""
        if not name.startswith("self.") or not script.is_here(reach) or not reach.loops or not reach.several:
            continue
        grows, empties = list(_grows(script, name)), list(_empties(script, name))
        near = [each for each in grows if _leads(script, each, [site.line for site in reach.calls])]
        if near and not empties:
            yield from violation_at(
                script,
                _behind(script, reach, near[0]),
                f"all of `{name}` is sent in each round, and each round makes it longer (line {near[0].lineno}): the "
                "exchange takes longer and longer",
                0.75,
                related=[RelatedPlace(path=script.source.path, line=near[0].lineno, message="grows here")],
            )


def _grows(script: Script, name: str) -> Iterator[ast.stmt]:
    for node in nodes_below(script.source.tree):
        match node:
            case ast.AugAssign(target=target, op=ast.Add()) if dotted_name(target) == name:
                yield node
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="append" | "extend"))) if (
                dotted_name(owner) == name
            ):
                yield node
            case _:
                pass


def _empties(script: Script, name: str) -> Iterator[ast.AST]:
    """Yield what makes a list shorter or replaces it, outside of the constructor."""
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Assign(targets=targets) if any(dotted_name(target) == name for target in targets):
                function = script.names.enclosing_function(node)
                if not (isinstance(function, ast.FunctionDef) and function.name == "__init__"):
                    yield node
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in EMPTIES:
                if dotted_name(owner) == name:
                    yield node
            case ast.Delete(targets=targets) if any(dotted_name(each) == name for each in targets):
                yield node
            case _:
                pass


def _leads(script: Script, stmt: ast.stmt, lines: list[int]) -> bool:
    """Return whether one of the calls that lead to an exchange is in the function of a statement."""
    function = script.names.enclosing_function(stmt)
    end = (function.end_lineno or 0) if function else 0
    return function is not None and any(function.lineno <= line <= end for line in lines)


def _behind(script: Script, reach: Reach, grows: ast.stmt) -> Reach:
    """Return an exchange as the call in the function that makes the list longer."""
    function = script.names.enclosing_function(grows)
    for depth, site in enumerate(reach.calls):
        if function and function.lineno <= site.line <= (function.end_lineno or 0):
            return reach._replace(fact=reach.fact._replace(site=site), calls=reach.calls[:depth])
    return reach
