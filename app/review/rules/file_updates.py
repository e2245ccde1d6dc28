"""Files that all ranks read back and write again, in one opening or in two."""

import ast

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.library_effects import LOG_MODES, REPLACES
from ...training_script.model.reach import Reach, Run, argument, together
from ...training_script.model.sequences import Event
from ...training_script.model.values import Value
from ...training_script.syntax import last_name
from ..rule_context import Script
from .early_reads import read_path

UPDATES = ("r+", "rb+")  # modes that keep what is in the file
# Functions and methods that get a file and leave it as it is.
READING = {
    *("load", "safe_load", "full_load", "read", "readline", "readlines", "reader", "DictReader"),
    *("list", "enumerate", "seek", "close"),
}
OPENER = "opener"  # which may refuse a file that is there
LOCKS = ("flock", "lockf", "locking", "lock", "unlock")


def mode_of(opened: Noted) -> str:
    """Return the mode in which a file is opened, if it is a constant that is passed."""
    given = argument(opened, 1, "mode")
    return str(given.key.value) if given and given.key.is_constant else ""


def is_update(fact: Noted) -> bool:
    """Return whether a call opens a file that is there to read it, and perhaps to write into it."""
    return fact.name == "open" and mode_of(fact).startswith(UPDATES)


def is_locked(script: Script, fact: Noted) -> bool:
    """Return whether a file that a call opens to update is locked in the statements that use it."""
    if not is_update(fact) or fact.site.path != script.source.path:
        return False
    stmt = script.source.statement_of(fact.node)
    around = stmt if isinstance(stmt, ast.With) else script.names.enclosing_function(fact.node) or script.source.tree
    return any(isinstance(node, ast.Call) and last_name(node.func) in LOCKS for node in ast.walk(around))


def is_read_back(run: Run, reach: Reach, fact: Noted, path: Key) -> bool:
    """Return whether ranks read the file, which was there before, for what they write into it."""
    if is_update(fact):
        return True
    before = run.reached[: run.reached.index(reach)]
    reads = [
        number
        for number, each in enumerate(before)
        if isinstance(each.fact, Noted) and each.several and (read := read_path(each.fact)) and read.key is path
    ]
    return (
        bool(reads)
        and together(before[reads[-1]], reach)
        and not any(isinstance(each.fact, Event) for each in before[reads[-1] :])
    )


def is_found_by_rest(run: Run, reach: Reach, path: Key) -> bool:
    """Return whether a file that is asked for is there: some ranks have come here before, and all have waited then."""
    if not any(path in parts(each.test) for each in reach.conditions):
        return False
    before = run.reached[: run.reached.index(reach)]
    first = (number for number, each in enumerate(before) if each.fact.site == reach.fact.site)
    return any(
        not before[number].by_all and any(isinstance(each.fact, Event) and each.by_all for each in before[number:])
        for number in first
    )


def replaced_path(fact: Noted) -> Value | None:
    """Return the path of the file that a call replaces, None if it replaces none."""
    place, name = REPLACES[fact.name]
    if fact.name == "open" and (not mode_of(fact).startswith(("w", *UPDATES)) or OPENER in fact.named):
        return None
    if fact.name in LOG_MODES:
        mode = argument(fact, *LOG_MODES[fact.name])
        if mode is None or not (mode.key.is_constant and str(mode.key.value).startswith("w")):
            return None  # it appends, so that nothing is lost
    return fact.owner if place < 0 else argument(fact, place, name)
