"""DW412: files, downloads and curves of every rank."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ....knowledge.schema import Severity
from ...training_script.model.function_steps import Noted, Rounds
from ...training_script.model.keys import RANKS, Key, Keys, parts
from ...training_script.model.library_calls import OF_PROCESS
from ...training_script.model.library_effects import DATASETS, DOWNLOADS, LOG_FILES, REPLACES, WRITERS
from ...training_script.model.noted_calls import TO_FILE
from ...training_script.model.reach import (
    ALL,
    FIRST_OF_NODES,
    NEAR,
    Reach,
    Run,
    argument,
    known_tests,
    same_on_ranks,
)
from ...training_script.model.sequences import Site
from ...training_script.model.values import Instance, Value
from ...training_script.syntax import last_name
from ..patches.guard_statement import guard_statement
from ..rule_context import Patch, Script, Violation
from ..violations import violation_at
from .file_updates import (
    LOCKS,
    READING,
    is_found_by_rest,
    is_locked,
    is_read_back,
    is_update,
    replaced_path,
)
from .locked_collectives import held_lock

WRITE, APPEND = "write-on-rank-0", "append-on-rank-0"
OF_OTHERS = "values of the other ranks are no longer in the file, and what reads it next there has to wait"
RACE = "checkpoint-race"  # what one rank makes or deletes is in the way of another, or damages it
VISION = "torchvision.datasets."
LOSES = "the last one to open it empties what the others have written"
OVER = "one copies over what another is still copying"
READS = "one reads it while another has emptied it, or has written a part"
EXISTS = "for all but the first it exists already"
# Functions that write what they are given to an open file, and nothing else.
WRITES = ("write", "writelines", "writerow", "writerows", "writeheader", "print", "dump", "safe_dump", "save", "writer")
WRITES += ("DictWriter", "close", "flush")
OF_FILE = ("fileno", "close", "flush", "seek", "truncate")  # what else the holder of a lock does with its file
CONTAINERS = {"dict", "list", "collections.OrderedDict", "collections.defaultdict", "collections.UserDict"}
COUNTS = ("range", "sequence", "constant", "enumerate")  # whose elements are the same on all ranks


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the files that all ranks write at one place."""
    yield from _curves(script, run)
    yield from _downloads(script, run)
    yield from _files(script, run)
    yield from _appended(script, run)


def _curves(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the writers for TensorBoard of all ranks that all of them write to."""
    logs = [
        (fact.owner.key, reach.by_all)
        for reach, fact in script.noted(".add_scalar", ".add_scalars")
        if reach.several and not reach.attempted and fact.owner
    ]
    has_one = False
    for reach, fact in run.of(*WRITERS):
        if fact.on_demand and has_one:
            continue
        has_one = has_one or reach.by_all
        folder = argument(fact, 0, "log_dir", "logdir")
        shared = reach.by_all and (folder is None or same_on_ranks(folder.key))
        by_all = {every for each, every in logs if fact.result.key in parts(each)}
        if shared and by_all:
            who, times = ("every rank writes", "rank") if any(by_all) else ("several ranks write", "of them")
            message = f"{who} events for TensorBoard to this directory{elsewhere(script, reach)}: each curve is there "
            message += f"once for each {times}"
            yield from violation_at(script, reach, message, 0.65, severity=severity_of(script, run, reach))


def _downloads(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the downloads of all ranks to one place, which nothing has downloaded before."""
    before: set[str] = set()
    for reach in run.reached:
        fact = reach.fact
        if not isinstance(fact, Noted):
            continue
        makes = fact.name.startswith(DATASETS) and fact.name.rpartition(".")[2][:1].isupper()
        to = argument(fact, *(DOWNLOADS.get(fact.name) or (0, "root")))
        if makes and fact.name.startswith("ogb."):
            to = argument(fact, 1, "root")
        if fact.name.startswith(VISION):
            given = argument(fact, -1, "download")
            if given is None or given.key is not run.keys.true:
                continue
        elif fact.name not in DOWNLOADS and not makes:
            continue
        if not reach.by_all:
            before.add(fact.name)
        elif to and same_on_ranks(to.key) and fact.name not in before and run.is_of_several(reach):
            message = (
                f"every rank downloads to this place{elsewhere(script, reach)}: one may read what another is still "
            )
            message += "writing"
            yield from violation_at(script, reach, message, 0.65, severity=severity_of(script, run, reach))


def _files(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the files that several ranks open to write, those of a helper at the first call that leads there."""
    known: set[Site] = set()
    for reach, fact in run.of(*REPLACES):
        if fact.site in known or _is_far(script, reach):
            continue  # a helper of helpers, such as a log, mostly names its files by the rank in a way of its own
        path = replaced_path(fact)
        if path is None or reach.attempted or not reach.several or not run.is_of_several(reach):
            continue
        if not (same_on_ranks(path.key) if reach.by_all else _sharing(path.key, reach.ranks, run.keys)):
            continue
        if _is_device(path.key) or _is_of_data(path.key, reach):
            continue
        if is_update(fact) and all(last_name(use.node.func) in READING for _, use, _ in _uses(run, fact)):
            continue
        if (
            is_found_by_rest(run, reach, path.key)
            or _is_lock_file(run, fact)
            or held_lock(script, reach)
            or is_locked(script, fact)
        ):
            continue
        known.add(fact.site)
        copies = fact.name == "shutil.copytree"
        written = [] if copies else list(_written(run, reach, fact))
        read_early = _is_asked_for(path.key, reach) and not all(map(_is_constant, written))
        inverted = not reach.ranks & 1 and script.is_here(reach)  # rank 0 is kept out, which is the one to write
        read_back = is_read_back(run, reach, fact, path.key)
        alike = not (copies or read_early or read_back or inverted) and all(map(_is_alike, written))
        who = "every rank writes" if reach.by_all else "several ranks write"
        message = f"{who} this {'directory' if copies else 'file'}{elsewhere(script, reach)}: "
        exists = copies and "dirs_exist_ok" not in fact.named
        message += (
            EXISTS if exists else "one of them would do" if alike else OVER if copies else READS if read_back else LOSES
        )
        severity = None if run.surely_distributed and not alike else "info"
        patch = partial(_write_once, script, reach, fact) if reach.by_all and script.is_here(reach) else None
        # A condition for one rank lets others through, or every rank logs.
        cause = "" if alike or not reach.by_all or fact.name in LOG_FILES else RACE
        if script.is_here(reach) and reach.calls and _is_guarded_elsewhere(run, fact):
            reach, patch = reach._replace(fact=fact._replace(site=reach.calls[-1])), None
        yield from violation_at(script, reach, message, 0.65, severity=severity, cause=cause, patch=patch)


def _is_guarded_elsewhere(run: Run, fact: Noted) -> bool:
    """Return whether some calls of a helper are for one rank only: the call for all ranks is what is wrong."""
    return any(each.fact.site == fact.site and each.ranks in (1, FIRST_OF_NODES) for each in run.reached)


class _Content(NamedTuple):
    """Something that is written to a file, and the rounds in which it is. ``known``: it is all that is written."""

    values: list[Value]
    rounds: tuple[Rounds, ...]
    known: bool


def _written(run: Run, reach: Reach, fact: Noted) -> Iterator[_Content]:
    """Yield what a call writes to the file that it opens, or what is written to it later."""
    values = [*fact.values, *fact.named.values()]
    if fact.name != "open":
        yield _Content([*values, *([fact.owner] if fact.owner else [])], (), fact.name not in (".savefig", *LOG_FILES))
        return
    for later, write, given in _uses(run, fact):
        name = last_name(write.node.func)
        if name in LOCKS or (later.ranks.bit_count() == 1 and not later.unsure):
            continue  # the others only open it
        yield _Content(given, later.loops[len(reach.loops) :], name in WRITES)


def _uses(run: Run, opened: Noted) -> Iterator[tuple[Reach, Noted, list[Value]]]:
    """Yield the calls that get a file which is open to write, with what else they get."""
    files = {opened.result.key}
    for reach, call in run.of(TO_FILE):
        given = [*call.values, *call.named.values(), *([call.owner] if call.owner else [])]
        if any(value.key in files for value in given):
            others = [value for value in given if value.key not in files]
            files.add(call.result.key)
            yield reach, call, others


def _is_lock_file(run: Run, fact: Noted) -> bool:
    """Return whether a file is opened to be locked, and holds nothing but the name of the process that has it."""
    uses = [(last_name(call.node.func), given) for _, call, given in _uses(run, fact)] if fact.name == "open" else []
    written = [given for name, given in uses if name not in (*LOCKS, *OF_FILE)]
    return any(name in LOCKS for name, _ in uses) and all(any(map(_names_process, given)) for given in written)


def _names_process(value: Value) -> bool:
    return any(part.op == "local" and part.args[0] == OF_PROCESS for part in parts(value.key))


def _is_alike(content: _Content) -> bool:
    """Return whether all ranks write the same: what they write at once is then what one of them would have written."""
    if any(_holds_what_differs(value) for value in content.values):
        return False
    keys = [*(value.key for value in content.values), *(each.amount for each in content.rounds)]
    return content.known and all(same_on_ranks(key) for key in keys)


def _holds_what_differs(value: Value) -> bool:
    """Return whether an object holds data of one rank, or is a container of which it is not known what it holds."""
    cls = value.obj.cls if isinstance(value.obj, Instance) else None
    if cls is None:
        return False
    held = (each for base in cls.ancestry() for each in base.attributes.values())
    return not CONTAINERS.isdisjoint(cls.library_bases()) or not all(same_on_ranks(each.key) for each in held)


def _is_constant(content: _Content) -> bool:
    """Return whether a text of the program is written, which no computation keeps others waiting for."""
    return content.known and not content.rounds and all(value.key.is_constant for value in content.values)


def _is_asked_for(path: Key, reach: Reach) -> bool:
    """Return whether a file is only written if it is missing: ranks then read what another is still writing."""
    asked = known_tests(reach.conditions)
    return any(not found and path in parts(test) for test, found in asked.items() if test.op in ("call", "local"))


def _is_far(script: Script, reach: Reach) -> bool:
    """Return whether a fact is several calls away from the script."""
    here = [number for number, site in enumerate(reach.calls) if site.path == script.source.path]
    return not script.is_here(reach) and len(reach.calls) - (here[-1] if here else 0) > NEAR


def _write_once(script: Script, reach: Reach, fact: Noted) -> Patch:
    """Return the patch that lets rank 0 write a file; the others wait where all of them surely come there."""
    apart = [each.test for each in reach.conditions] + [each.amount for each in reach.loops]
    return guard_statement(script, fact.node, WRITE, others_wait=all(same_on_ranks(key) for key in apart))


def severity_of(script: Script, run: Run, reach: Reach) -> Severity | None:
    """Return the lowest severity for what a helper does that may serve one process as well, None for the usual one."""
    surely = script.is_here(reach) or (run.surely_distributed and run.is_of_several(reach))
    return None if surely else "info"


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


def elsewhere(script: Script, reach: Reach) -> str:
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
            message = f"{who} one file{elsewhere(script, reach)}: what should be there once is there several times"
            patch = partial(guard_statement, script, fact.node, APPEND, others_wait=False, why=OF_OTHERS)
            patch = patch if sharing == ALL and script.is_here(reach) else None
            yield from violation_at(script, reach, message, 0.65, severity="info", patch=patch)


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
