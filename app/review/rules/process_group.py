"""DW105 and DW409: process groups that are made or destroyed in a way that leaves ranks waiting."""

import ast
from collections.abc import Iterator

from ...training_script.model.items import Noted
from ...training_script.model.reach import ALL, Run, argument
from ..rule_context import Script, Violation
from ..violations import violation_at

INIT = "torch.distributed.init_process_group"
DESTROY = "torch.distributed.destroy_process_group"


def check_rank(script: Script, run: Run) -> Iterator[Violation]:
    """DW105: yield the process groups that are made with the local rank as the rank."""
    text = script.source.text
    if "LOCAL_RANK" not in text or "spawn" in text or "Process(" in text:
        return
    for reach, fact in run.of(INIT):
        rank = argument(fact, 3, "rank")
        if rank and rank.key.op == "rank" and rank.key.args[0] == "local" and not reach.unsure:
            message = "the local rank is passed as the rank: on the second node the same numbers come again"
            yield from violation_at(script, reach, message, 0.85)


def check_end(script: Script, run: Run) -> Iterator[Violation]:
    """DW409: yield destroy_process_group on some ranks only, and in a finally block."""
    ends = list(run.of(DESTROY))
    reached = 0
    for reach, _ in ends:
        reached |= ALL if reach.unsure else reach.ranks
    for reach, fact in ends:
        if not script.is_here(reach):
            continue
        if reached != ALL and not reach.unsure:
            message = "only some ranks destroy the process group: with NCCL they wait for the others there"
            yield from violation_at(script, reach, message, 0.8)
        elif _in_finally(script, fact):
            message = "in a finally block: a rank that failed waits here for ranks that are still in a collective"
            yield from violation_at(script, reach, message, 0.7, severity="warning")


def _in_finally(script: Script, fact: Noted) -> bool:
    node: ast.AST = fact.node
    while (parent := script.source.parents.get(node)) is not None and not isinstance(node, ast.FunctionDef):
        if isinstance(parent, ast.Try) and node in parent.finalbody:
            return True
        node = parent
    return False
