"""DW471: collectives while a lock is held that the other ranks wait for, or while ranks take turns."""

import ast
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.held_locks import HeldLock, has_locks, lock_around
from ...training_script.model.reach import Reach, Run
from ...training_script.model.sequences import Event
from ...training_script.nodes import node_at, nodes_of_kinds
from ...training_script.rank_names import TURN_CONTEXTS
from ...training_script.syntax import last_name
from ..rule_context import Script, Violation
from ..violations import violation_at

OF_TURNS = "rank-conditional-collective"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives that a rank calls while it holds a lock that all ranks take."""
    if not run.distributed:
        return
    for reach in run.reached:
        if isinstance(reach.fact, Event) and reach.several and (lock := held_lock(script, reach)):
            line = lock.taken.lineno
            in_turns = last_name(lock.taken) in TURN_CONTEXTS
            where = f"in the turn of a rank (line {line})" if in_turns else f"under the lock of line {line}"
            message = f"{reach.name} is called {where}: the rank that is there waits for ranks that wait for "
            message += "their turn" if in_turns else "the lock"
            cause = OF_TURNS if in_turns else ""
            yield from violation_at(script, reach, message, 0.85, branch=line, cause=cause)


def in_text(script: Script) -> list[int]:
    """Return the lines of the locks that may be held at collectives of a file, one for each collective."""
    if not has_locks(script.source.text):
        return []
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    locks = (lock_around(script.names, call) for call in calls if collective_name(call, script.names))
    return [lock.taken.lineno for lock in locks if lock]


def held_lock(script: Script, reach: Reach) -> HeldLock | None:
    """Return the lock that all ranks take where a fact is reached, or the call in the file that leads to it."""
    for site in (*reach.calls, reach.fact.site) if has_locks(script.source.text) else ():
        here = site.path == script.source.path
        node = node_at(script.source.tree, site.line, site.column, ast.Call) if here else None
        lock = lock_around(script.names, node) if node else None
        if lock and lock.of_ranks and not (lock.file and script.depends_on_rank(lock.file)):
            return lock
    return None
