"""DW412: directories, files and experiments that every rank makes."""

import ast
from collections.abc import Iterator
from functools import partial

from ....knowledge.schema import Severity
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import RANKS, Key, Keys, parts
from ...training_script.model.reach import ALL, Reach, Run, argument, same_on_ranks
from ...training_script.model.values import Value
from ..patches.guard_statement import guard_statement
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

EXIST_OK, DELETE = "allow-existing-directory", "delete-on-rank-0"
OTHER_DISKS = "on disks that nodes do not share the others keep it"
# What replaces a file: the place of its path among the arguments and the names it has; -1: the object of the method.
REPLACES: dict[str, tuple[int, str]] = {
    "open": (0, "file"),
    **dict.fromkeys(("numpy.save", "numpy.savez"), (0, "file")),
    "shutil.copytree": (1, "dst"),
    **dict.fromkeys((".write_text", ".write_bytes"), (-1, "")),
    **dict.fromkeys((".to_csv", ".to_json", ".to_parquet", ".to_pickle"), (0, "path_or_buf")),
    ".save_to_disk": (0, "dataset_path"),
    ".savefig": (0, "fname"),
}
FIRST_OF_NODES = sum(1 << bit for bit, rank in enumerate(RANKS) if rank.local == 0)
WRITERS = ("torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter")
DATASETS = "torchvision.datasets."
# Functions that download: the place and the name of the argument for the path.
PLACES = {"urllib.request.urlretrieve": (1, "filename")}
COUNTS = ("range", "sequence", "constant", "enumerate")  # whose elements are the same on all ranks
DELETES = ("shutil.rmtree", "os.remove", "os.unlink", "os.rmdir", ".unlink", ".rmdir")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the side effects of all ranks that fail or double where a second rank has them too."""
    if not run.distributed:
        return
    yield from _directories(script, run)
    yield from _deletions(script, run)
    yield from _experiments(script, run)
    yield from _curves(script, run)
    yield from _downloads(script, run)
    yield from _files(script, run)
    yield from _appended(script, run)


def _directories(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of("os.makedirs", "os.mkdir", ".mkdir"):
        path = fact.owner if fact.name == ".mkdir" else argument(fact, 0, "name", "path")
        if (
            not path
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
                f"every rank makes this directory{_elsewhere(script, reach)}: for all but the first it exists already, "
                "or appears in between",
                0.75,
                severity=_severity(script, run, reach),
                patch=(lambda fact=fact: _allow_existing(script, fact)) if script.is_here(reach) else None,
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
        if path and ignored is None and not _is_memory(path.key) and _by_all(reach) and same_on_ranks(path.key):
            message = f"every rank deletes this{_elsewhere(script, reach)}: one of them finds it gone, or deletes what "
            message += "another has just written"
            patch = partial(_delete_once, script, reach, fact) if script.is_here(reach) else None
            severity = _severity(script, run, reach)
            yield from violation_at(script, reach, message, 0.75, severity=severity, patch=patch)


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


def _curves(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the writers for TensorBoard of all ranks that all of them write to."""
    logs = [fact.owner.key for reach, fact in run.of(".add_scalar", ".add_scalars") if _by_all(reach) and fact.owner]
    for reach, fact in run.of(*WRITERS):
        folder = argument(fact, 0, "log_dir", "logdir")
        shared = _by_all(reach) and (folder is None or same_on_ranks(folder.key))
        if shared and any(fact.result.key in parts(each) for each in logs):
            message = (
                f"every rank writes events for TensorBoard to this directory{_elsewhere(script, reach)}: each curve "
            )
            message += "is there once for each rank"
            yield from violation_at(script, reach, message, 0.65, severity=_severity(script, run, reach))


def _downloads(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the downloads of all ranks to one place, which nothing has downloaded before."""
    before: set[str] = set()
    for reach in run.reached:
        fact = reach.fact
        if not isinstance(fact, Noted):
            continue
        to = argument(fact, *(PLACES.get(fact.name) or (0, "root")))
        if fact.name.startswith(DATASETS):
            given = argument(fact, -1, "download")
            if given is None or given.key is not run.keys.true:
                continue
        elif fact.name not in PLACES:
            continue
        if not _by_all(reach):
            before.add(fact.name)
        elif to and same_on_ranks(to.key) and fact.name not in before and run.is_of_several(reach):
            message = (
                f"every rank downloads to this place{_elsewhere(script, reach)}: one may read what another is still "
            )
            message += "writing"
            yield from violation_at(script, reach, message, 0.65, severity=_severity(script, run, reach))


def _files(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of(*REPLACES):
        path = _replaced(fact)
        if path is None or not (_by_all(reach) and same_on_ranks(path.key) and run.is_of_several(reach)):
            continue
        if _is_device(path.key) or _is_of_data(path.key, reach):
            continue
        message = f"every rank writes this file{_elsewhere(script, reach)}: the last one to open it empties what the "
        message += "others have written"
        severity = None if run.surely_distributed else "info"
        yield from violation_at(script, reach, message, 0.65, severity=severity)


def _severity(script: Script, run: Run, reach: Reach) -> Severity | None:
    """Return the lowest severity for what a helper does that may serve one process as well, None for the usual one."""
    surely = script.is_here(reach) or (run.surely_distributed and run.is_of_several(reach))
    return None if surely else "info"


def _replaced(fact: Noted) -> Value | None:
    """Return the path of the file that a call replaces, None if it replaces none."""
    place, name = REPLACES[fact.name]
    if fact.name == "open":
        mode = argument(fact, 1, "mode")
        if not (mode and mode.key.is_constant and str(mode.key.value).startswith("w")):
            return None
    return fact.owner if place < 0 else argument(fact, place, name)


def _is_of_data(path: Key, reach: Reach) -> bool:
    """Return whether a path is made of an element of data, or in a loop over data: those of ranks are not the same."""
    loops = [loop.site for loop in reach.loops if not any(part.op == "range" for part in parts(loop.amount))]
    return any(
        (part.op == "element" and part.args[0].op not in COUNTS)
        or (part.op == "at" and any(part.args[0] == at.path and part.args[1] > at.line for at in loops))
        for part in parts(path)
    )


def _is_device(path: Key) -> bool:
    return any(
        (part.op == "library" and str(part.args[0]).endswith("devnull"))
        or (part.is_constant and str(part.value).startswith("/dev/"))
        for part in parts(path)
    )


def _elsewhere(script: Script, reach: Reach) -> str:
    """Return the place of a fact in brackets, if it is in another file."""
    site = reach.fact.site
    return "" if script.is_here(reach) else f" ({site.path.rpartition('/')[2]}:{site.line})"


def _appended(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of("open"):
        path, mode = argument(fact, 0, "file"), argument(fact, 1, "mode")
        if not path or not mode or not mode.key.is_constant or reach.attempted or not reach.several:
            continue
        if str(mode.key.value).startswith("a") and (sharing := _sharing(path.key, reach.ranks, run.keys)):
            who = "every rank appends to" if sharing == ALL else "several ranks append to"
            message = f"{who} one file{_elsewhere(script, reach)}: what should be there once is there several times"
            yield from violation_at(script, reach, message, 0.65, severity="info")


def _sharing(path: Key, ranks: int, keys: Keys) -> int:
    """Return the ranks, as bits, that have one path in common with another rank; 0 if none surely have."""
    shared = 0
    seen: dict[Key, int] = {}
    for bit, rank in enumerate(RANKS):
        if ranks & (1 << bit):
            own = keys.specialise(path, rank)
            if _is_device(own) or not same_on_ranks(own):
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
