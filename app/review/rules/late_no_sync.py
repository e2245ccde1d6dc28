"""DW261: contexts of no_sync around a backward pass only, where DDP has decided in the forward pass before."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Reach, Run, together
from ...training_script.nodes import walk
from ...training_script.syntax import FUNCTIONS
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

NAME = "no_sync"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the backward passes in a context of no_sync whose forward pass was made outside of it."""
    if not script.mentions(NAME) or not run.distributed:
        return
    forward: Reach | None = None
    for reach in run.reached:
        if reach.name == WRAPPED_FORWARD:
            forward = reach
        elif reach.name == ".backward" and forward is not None and script.is_here(reach):
            context = _context(script, reach)
            if context is None or not _is_of_graph(reach) or not together(forward, reach):
                continue
            line = _line_in(forward, context, script.source.path)
            if line and forward.loops == reach.loops:
                yield from violation_at(
                    script,
                    reach,
                    f"DDP has decided in the forward pass (line {line}) that this backward pass reduces the gradients: "
                    "no_sync around the backward pass alone changes nothing",
                    0.85,
                    related=[RelatedPlace(path=script.source.path, line=line, message="the forward pass")],
                )


def _context(script: Script, reach: Reach) -> ast.With | ast.AsyncWith | None:
    """Return the innermost ``with`` around a fact of its function, if it may be one of no_sync."""
    at = script.source.parents.get(reach.fact.node) if isinstance(reach.fact, Noted) else None
    while at is not None and not isinstance(at, FUNCTIONS):
        if isinstance(at, ast.With | ast.AsyncWith) and any(_is_no_sync(script, item) for item in at.items):
            return at
        at = script.source.parents.get(at)
    return None


def _is_no_sync(script: Script, item: ast.withitem) -> bool:
    given = [item.context_expr, *script.names.origins(item.context_expr)]
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == NAME and not each.args
        for made in given
        for each in (made, *walk(made))
        if isinstance(made, ast.expr)
    )


def _is_of_graph(reach: Reach) -> bool:
    return isinstance(reach.fact, Noted) and reach.fact.owner is not None and "graph" in reach.fact.owner.facts


def _line_in(forward: Reach, context: ast.With | ast.AsyncWith, path: str) -> int:
    """Return the line, of this script, that leads to a forward pass before a context; 0 if it is inside."""
    here = [site.line for site in (*forward.calls, forward.fact.site) if site.path == path]
    inside = any(context.lineno <= line <= (context.end_lineno or context.lineno) for line in here)
    return 0 if inside or not here else here[-1]
