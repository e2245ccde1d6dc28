"""DW411: rounds that a rank leaves by an error in its own data, where the others communicate later in the round."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Attempt, Item, kinds
from ...training_script.model.keys import DIFFERS
from ...training_script.model.reach import Reach, Run
from ...training_script.model.sequences import Event, Site
from ...training_script.nodes import try_with_handler
from ..rule_context import Script, Violation

LEAVES = {"next": "goes on to the next round", "break": "leaves the loop", "return": "leaves the function"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the handlers that leave a round in which all ranks wait for each other behind the statement."""
    seen: set[Site] = set()
    for reach in run.reached:
        if not isinstance(reach.fact, Event) or not reach.several or not reach.fact.wrapped:
            continue
        for attempt, how in _left(reach):
            site = attempt.site
            if site is None or site in seen or site.path != script.source.path:
                continue
            seen.add(site)
            if _reads_own_data(script, site):
                yield Violation(
                    line=site.line,
                    column_bytes=site.column,
                    end_line=site.line,
                    message=f"a rank whose own data raise this error {LEAVES[how]}, while the others wait in "
                    + reach.fact.kind,
                    confidence=0.75,
                )


def _left(reach: Reach) -> Iterator[tuple[Attempt, str]]:
    """Yield the statements before a fact, in the loops around it, whose handler leaves the round, and how.

    Statements that communicate themselves are left to the rule of swallowed errors: the ranks may agree there.
    """
    assert isinstance(reach.fact, Event)
    for loop in reach.loops:
        for place, item in enumerate(loop.body):
            how = _end(item.handler) if isinstance(item, Attempt) else ""
            if not isinstance(item, Attempt) or how not in LEAVES or kinds(item.body):
                continue
            if reach.fact.kind in kinds(loop.body[place + 1 :]):
                yield item, how


def _end(handler: list[Item]) -> str:
    return str(getattr(handler[-1], "kind", "")) if handler else ""


def _reads_own_data(script: Script, handler: Site) -> bool:
    """Return whether a statement reads a value that differs between ranks before its handler."""
    found = try_with_handler(script.source.tree, handler.line)
    reads = (node for stmt in found.body for node in ast.walk(stmt) if isinstance(node, ast.Name)) if found else ()
    values = (script.evaluated.value(node) for node in reads if isinstance(node.ctx, ast.Load))
    return any(key is not None and bool(key.differs_by & DIFFERS) for key in values)
