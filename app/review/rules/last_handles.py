"""DW415: handles of the rounds of a loop under one name, of which only the last is waited for."""

import ast
from collections.abc import Iterator

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.reach import Run
from ...training_script.nodes import walk
from ...training_script.syntax import LOOPS
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

PREFIX = "torch.distributed."
BEGINS = tuple(PREFIX + name for name in ("isend", "irecv"))
COLLECTIVES = tuple(PREFIX + name for name in GROUP_PLACE)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls that begin in each round, of which something waits for the last one behind the loop."""
    for reach, fact in run.of(*BEGINS, *COLLECTIVES):
        flag = fact.named.get("async_op")
        begins = fact.name in BEGINS or (flag is not None and flag.key is run.keys.true)
        if not (begins and reach.loops and script.is_here(reach)):
            continue
        stmt = script.source.statement_of(fact.node)
        loop = script.source.parents.get(stmt)
        match stmt:
            case ast.Assign(targets=[ast.Name(id=handle)]) if stmt.value is fact.node and isinstance(loop, LOOPS):
                wait = _waited_behind(script, loop, handle)
            case _:
                continue
        if wait is not None:
            name = fact.name.removeprefix(PREFIX)
            yield from violation_at(
                script,
                reach,
                f"each round begins another {name} under one name, and line {wait.lineno} waits for the last one: the "
                "others may still be at work",
                0.85,
                related=[RelatedPlace(path=fact.site.path, line=wait.lineno, message="waited for here")],
            )


def _waited_behind(script: Script, loop: ast.stmt, handle: str) -> ast.Name | None:
    """Return the wait for a handle behind a loop that does nothing with it but to begin."""
    inside = (node for node in walk(loop) if isinstance(node, ast.Name) and node.id == handle)
    if any(isinstance(node.ctx, ast.Load) for node in inside):
        return None
    block = script.source.block_of(loop)
    for stmt in block[block.index(loop) + 1 :]:
        uses = [node for node in walk(stmt) if isinstance(node, ast.Name) and node.id == handle]
        if uses:
            around = script.source.parents.get(uses[0])
            return uses[0] if isinstance(around, ast.Attribute) and around.attr == "wait" else None
    return None
