"""DW507: places whose names each rank makes for itself, by the time or by chance, and that several ranks use."""

from collections.abc import Iterator
from functools import partial

from ....knowledge.schema import Severity
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, CLOCK, Key, parts
from ...training_script.model.library_calls import LOCAL_RESULTS, THE_TIME, UNIQUE
from ...training_script.model.noted_calls import SETTINGS_OF_TRAINERS
from ...training_script.model.reach import ALL, Reach, Run, argument
from ...training_script.model.sequences import Site
from ...training_script.model.values import Value
from ..patches.one_value import name_of_first
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .early_parts import COUNTED
from .early_parts import WRITES as WRITES_FILE
from .early_reads import REMOVES, made_path, read_path, written_path

# Calls by which all ranks write one checkpoint, each with the role of what has the method, and the place of the path.
SAVES_OF_ALL = {
    "torch.distributed.checkpoint.save": ("", -1, "checkpoint_id"),
    "torch.distributed.checkpoint.async_save": ("", -1, "checkpoint_id"),
    ".save_state": ("accelerator", 0, "output_dir"),
    ".save_checkpoint": ("engine", 0, "save_dir"),
    **{f"transformers.{name}": ("", 0, "output_dir") for name in SETTINGS_OF_TRAINERS},
}
WRITES = WRITES_FILE | {*SAVES_OF_ALL, "os.makedirs", "os.mkdir", ".mkdir"}
SCATTERED = "what the ranks write there under their numbers (line {}) is scattered over several directories"
ONLY_HERE = {*UNIQUE, LOCAL_RESULTS["tempfile.mkdtemp"]}  # names that no other rank has


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the names of places that one rank makes and others use, and of checkpoints and directories of all."""
    made: dict[Key, Reach] = {}
    of_each: dict[Key, Reach] = {}  # what each rank has put there under its own number
    folders: dict[Key, Reach] = {}  # that each rank has made under a name of its own
    removed = {path.key for _, fact in run.of(REMOVES) if (path := made_path(fact))}
    for reach in run.reached if run.distributed and not WRITES.isdisjoint(run.places) else ():
        fact = reach.fact
        if not isinstance(fact, Noted) or reach.unsure or reach.attempted:
            continue
        shared = _shared_place(fact) if fact.name in SAVES_OF_ALL else None
        written = made_path(fact) or written_path(fact)
        path = shared or written or read_path(fact)
        if path is None:
            continue
        for name in parts(path.key):
            if shared and reach.ranks == ALL and (_is_own(name) or _is_time(name)):
                yield from _violation(script, run, reach, name, "they save one checkpoint under several names")
                break
            if not _is_own(name):
                continue
            if reach.ranks != ALL and (each := of_each.get(name)) and not written and _is_counted(path.key):
                yield from _violation(
                    script, run, reach, name, f"what each has written (line {each.fact.site.line}) is not"
                )
            elif reach.ranks != ALL:
                made.setdefault(name, reach)
            elif name in made:
                line = made.pop(name).fact.site.line
                yield from _violation(script, run, reach, name, f"only one rank has made this one (line {line})")
            elif written and path.key.differs_by & BY_RANK:
                of_each.setdefault(name, reach)
                held = next((folder for folder in folders if _is_below(path.key, folder, name)), None)
                if held is not None:
                    yield from _violation(
                        script, run, folders.pop(held), name, SCATTERED.format(fact.site.line), at=reach
                    )
            elif made_path(fact) and fact.name != REMOVES and path.key not in removed:
                folders.setdefault(path.key, reach)


def _shared_place(save: Noted) -> Value | None:
    """Return the path to which all ranks write one checkpoint, by a call or by a trainer that gets it."""
    role, place, name = SAVES_OF_ALL[save.name]
    is_one = not role or (save.owner is not None and role in save.owner.facts)
    return argument(save, place, name) if is_one else None


def _is_own(key: Key) -> bool:
    """Return whether each rank makes a name for itself."""
    return key.op == CLOCK or (key.op == "local" and key.args[0] in ONLY_HERE)


def _is_time(key: Key) -> bool:
    """Return whether a number is the time, of which ranks hardly ever have one."""
    return key.op == "local" and key.args[0] == THE_TIME


def _is_counted(path: Key) -> bool:
    return any(part.op in COUNTED for part in parts(path))


def _is_below(path: Key, folder: Key, name: Key) -> bool:
    """Return whether a path is in a directory of such a name."""
    return path is not folder and folder in parts(path) and name in parts(folder)


def _violation(
    script: Script, run: Run, reach: Reach, name: Key, what: str, at: Reach | None = None
) -> Iterator[Violation]:
    """Yield the violation where a name is made, or at the fact if that is elsewhere. ``at``: where it is used."""
    path, line, column, *_ = name.args if name.op == CLOCK else name.args[1:]
    used = (at or reach).fact.site
    related = [RelatedPlace(path=used.path, line=used.line, message="used here")]
    if path != script.source.path:
        related.append(RelatedPlace(path=path, line=line, message="the name is made here"))
    elif isinstance(reach.fact, Noted):
        reach = reach._replace(fact=reach.fact._replace(site=Site(path, line, column, line)), calls=())
    severity: Severity | None = None if name.op == CLOCK or _is_time(name) else "error"
    why = "asks for the time itself: where a second begins in between, the names differ, and "
    if severity:
        why = "makes a name of its own, and "
    where = "" if at or what.endswith("names") else f" where it is used (line {used.line})"
    yield from violation_at(
        script,
        reach,
        f"each rank {why}{what}{where}",
        0.75,
        severity=severity,
        related=related,
        patch=partial(name_of_first, script, run, line) if path == script.source.path else None,
    )
