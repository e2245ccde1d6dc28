"""DW412: directories, files and experiments that every rank makes."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import RANKS, Key, Keys, parts
from ...training_script.model.reach import ALL, Reach, Run, argument, same_on_ranks
from ..patches.guard_statement import guard_statement
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

EXIST_OK, DELETE = "allow-existing-directory", "delete-on-rank-0"
OTHER_DISKS = "on disks that nodes do not share the others keep it"
FIRST_OF_NODES = sum(1 << bit for bit, rank in enumerate(RANKS) if rank.local == 0)
DELETES = ("shutil.rmtree", "os.remove", "os.unlink", "os.rmdir", ".unlink", ".rmdir")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the side effects of all ranks that fail or double where a second rank has them too."""
    if not run.distributed:
        return
    yield from _directories(script, run)
    yield from _deletions(script, run)
    yield from _experiments(script, run)
    yield from _files(script, run)
    yield from _appended(script, run)


def _directories(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of("os.makedirs", "os.mkdir", ".mkdir"):
        path = fact.owner if fact.name == ".mkdir" else argument(fact, 0, "name", "path")
        if (
            not path
            or not script.is_here(reach)
            or not _by_all(reach)
            or not same_on_ranks(path.key)
            or {"exist_ok", "**"} & fact.named.keys()
            or _is_made(run, reach, path.key)
        ):
            continue
        if len(fact.values) < (3 if fact.name != "os.mkdir" else 9):
            yield from violation_at(
                script,
                reach,
                "every rank makes this directory: for all but the first it exists already, or appears in between",
                0.75,
                patch=lambda fact=fact: _allow_existing(script, fact),
            )


def _is_made(run: Run, reach: Reach, path: Key) -> bool:
    """Return whether every rank has made a directory below this one before, where that did not exist."""
    if not any(part is path for each in reach.conditions for part in parts(each.test)):
        return False
    for each in run.reached[: run.reached.index(reach)]:
        if not isinstance(each.fact, Noted) or each.fact.name != "os.makedirs" or each.ranks != ALL:
            continue
        below = argument(each.fact, 0, "name")
        if below is None or below.key.op != "call" or below.key.args[1] is not path:
            continue
        if all(
            below.key in parts(condition.test) for condition in each.conditions if condition not in reach.conditions
        ):
            return True
    return False


def _deletions(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of(*DELETES):
        of_path = fact.name.startswith(".")
        path = fact.owner if of_path else argument(fact, 0, "path")
        ignored = argument(fact, 0, "missing_ok") if of_path else argument(fact, 1, "ignore_errors")
        if (
            path
            and ignored is None
            and not _is_memory(path.key)
            and script.is_here(reach)
            and _by_all(reach)
            and same_on_ranks(path.key)
        ):
            message = "every rank deletes this: one of them finds it gone, or deletes what another has just written"
            yield from violation_at(script, reach, message, 0.75, patch=partial(_delete_once, script, reach, fact))


def _delete_once(script: Script, reach: Reach, fact: Noted) -> Patch:
    """Return the patch that lets rank 0 delete a path; the others wait where all of them surely come there."""
    apart = [each.test for each in reach.conditions] + [each.amount for each in reach.loops]
    waits = all(same_on_ranks(key) for key in apart)
    why = OTHER_DISKS if waits else "what another rank writes there next may be deleted"
    return guard_statement(script, fact.node, DELETE, others_wait=waits, why=why)


def _is_memory(held: Key) -> bool:
    """Return whether something is shared memory, which has a method of the same name as a path."""
    return any(str(part.args[0]).endswith("SharedMemory") for part in parts(held) if part.op in ("call", "library"))


def _experiments(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of("wandb.init"):
        if _by_all(reach) and not {"group", "mode", "**", "settings"} & fact.named.keys():
            yield from violation_at(script, reach, "every rank starts a run of its own in Weights & Biases", 0.75)
    everywhere = [reach for each in script.runs for reach, _ in each.of("wandb.init")]
    if everywhere and not any(reach.several for reach in everywhere):
        for reach, _ in run.of("wandb.log"):
            if _by_all(reach):
                message = "every rank logs this; the run of Weights & Biases exists on one of them only"
                yield from violation_at(script, reach, message, 0.65)


def _files(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of("open"):
        path, mode = argument(fact, 0, "file"), argument(fact, 1, "mode")
        new = mode and mode.key.is_constant and isinstance(mode.key.value, str) and mode.key.value[:1] == "w"
        if path and new and script.is_here(reach) and _by_all(reach) and same_on_ranks(path.key):
            if any(part.op == "library" and str(part.args[0]).endswith("devnull") for part in parts(path.key)):
                continue
            if not (path.key.is_constant and str(path.key.value).startswith("/dev/")):
                message = "every rank writes this file: the last one to open it empties what the others have written"
                yield from violation_at(script, reach, message, 0.65, severity="info")


def _appended(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of("open"):
        path, mode = argument(fact, 0, "file"), argument(fact, 1, "mode")
        if not path or not mode or not mode.key.is_constant or reach.attempted or not reach.several:
            continue
        if str(mode.key.value).startswith("a") and (sharing := _sharing(path.key, reach.ranks, run.keys)):
            where = "" if script.is_here(reach) else f" ({fact.site.path.rpartition('/')[2]}:{fact.site.line})"
            who = "every rank appends to" if sharing == ALL else "several ranks append to"
            message = f"{who} one file{where}: what should be there once is there several times"
            yield from violation_at(script, reach, message, 0.65, severity="info")


def _sharing(path: Key, ranks: int, keys: Keys) -> int:
    """Return the ranks, as bits, that have one path in common with another rank; 0 if none surely have."""
    shared = 0
    seen: dict[Key, int] = {}
    for bit, rank in enumerate(RANKS):
        if ranks & (1 << bit):
            own = keys.specialise(path, rank)
            is_device = any(str(part.value).startswith("/dev") for part in parts(own) if part.is_constant)
            if is_device or not same_on_ranks(own):
                continue
            if own in seen:
                shared |= 1 << bit | 1 << seen[own]
            seen.setdefault(own, bit)
    return shared if shared & ~FIRST_OF_NODES else 0


def _by_all(reach: Reach) -> bool:
    return reach.several and reach.ranks == ALL and not reach.attempted


def _allow_existing(script: Script, fact: Noted) -> Patch:
    source, call = script.source, fact.node
    added = source.add_argument(call, "exist_ok=True")
    if added is None or (fact.name == "os.mkdir" and not isinstance(call.func, ast.Attribute)):
        return no_patch(EXIST_OK, "call os.makedirs with exist_ok=True")
    if fact.name != "os.mkdir" or not isinstance(call.func, ast.Attribute):
        return Patch(id=EXIST_OK, safety="safe", edits=[added])
    return Patch(
        id=EXIST_OK,
        safety="safe",
        edits=[source.replace(call.func, f"{source.code(call.func.value)}.makedirs"), added],
    )
