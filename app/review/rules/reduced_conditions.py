"""DW456: collectives that a rank reaches or not by the very value that it reduces there."""

import ast
from collections.abc import Iterator, Set

from ...training_script.model.keys import DIFFERS, LOCAL, Key
from ...training_script.model.reach import Run, alternatives
from ...training_script.model.sequences import Event
from ...training_script.nodes import nodes_below, walk
from ...training_script.syntax import dotted_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace

REDUCES = ("all_reduce", "all_gather", "all_gather_object", "reduce")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield ``local or any_rank(local)``: what is reduced over the ranks is a value of each rank."""
    reduced = {
        site[:3]
        for each in run.reached
        if isinstance(each.fact, Event) and each.fact.kind in REDUCES
        for site in (each.fact.site, *each.calls)
    }
    for node in nodes_below(script.source.tree) if reduced and run.distributed else ():
        match node:
            case ast.BoolOp(values=[*before, last]) if not isinstance(script.source.parents.get(node), ast.Expr):
                pairs = [(each, [last]) for each in before]
            case ast.If(test=test, body=body) if _is_local(script, test):
                pairs = [(test, body)]
            case ast.IfExp(test=test, body=first, orelse=second) if _is_local(script, test):
                pairs = [(test, [first, second])]
            case _:
                continue
        for test, inside in pairs:
            name = _asked(test)
            calls = (each for part in inside for each in walk(part) if _reduces(script, reduced, each, name))
            found = next(calls, None)
            if name and isinstance(found, ast.Call):
                yield Violation(
                    line=node.lineno,
                    column_bytes=node.col_offset + 1,
                    end_line=test.end_lineno or node.lineno,
                    message=f"`{name}` decides whether a rank comes to the collective that reduces it (line "
                    f"{found.lineno}): ranks with another value wait there alone",
                    confidence=0.85,
                    related=[RelatedPlace(path=script.source.path, line=found.lineno, message="reduced here")],
                )
                break


def _is_local(script: Script, test: ast.expr) -> bool:
    key = script.evaluated.value(test)
    return key is not None and bool(key.differs_by & LOCAL) and not _may_be_none(key)


def _may_be_none(key: Key) -> bool:
    """Return whether a value is None on all ranks or on none: a condition of its name asks if there is one."""
    sides = [each for each in alternatives(key) if each.op == "if" and not each.args[0].differs_by & DIFFERS]
    return any(side.is_constant and side.value is None for each in sides for side in each.args[1:])


def _asked(test: ast.expr) -> str:
    """Return the name of the value that a condition asks for."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    return dotted_name(test) if isinstance(test, ast.Name | ast.Attribute) else ""


def _reduces(script: Script, reduced: Set[tuple[str, int, int]], node: ast.AST, name: str) -> bool:
    """Return whether a call passes a value by its name and leads to a reduction, one of the places ``reduced``."""
    if not isinstance(node, ast.Call) or not any(dotted_name(each) == name for each in node.args[:1]):
        return False
    return (script.source.path, node.lineno, node.col_offset + 1) in reduced
