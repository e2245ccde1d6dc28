"""DW505: files and directories that ranks use before the rank that writes or makes them is done."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.model.library_effects import DOWNLOADS, MOVES, READS, REPLACES
from ...training_script.model.reach import ALL, FIRST_OF_NODES, Reach, Run, argument, same_on_ranks, together
from ...training_script.model.sequences import Event
from ...training_script.model.values import Value
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import last_name
from ..patches.shared_values import wait_for_writer
from ..rule_context import Script, Violation
from ..violations import in_function_of, violation_at
from .store_counters import waits_in_store

MOVED_TO = (*MOVES, "shutil.copy", "shutil.copyfile", "shutil.copy2")
COLLECTIVES = {f"torch.distributed.{name}": place for name, place in GROUP_PLACE.items()}
REMOVES = "shutil.rmtree"
SAVES = {"torch.save": (1, "f"), "safetensors.torch.save_file": (1, "filename"), **dict.fromkeys(MOVED_TO, (1, "dst"))}
VISION = "torchvision.datasets."


def check_read(script: Script, run: Run) -> Iterator[Violation]:
    """DW505: yield the uses of what one rank writes, makes or deletes just before, without a wait in between."""
    yield from _reads(script, run)
    yield from _downloaded(script, run)
    yield from _taken_away(script, run)
    yield from _writes_below(script, run)
    yield from _made_again(script, run)


def _made_again(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the directories that ranks make while another one may still be deleting them."""
    deleted: list[tuple[Reach, Key]] = []
    for reach in run.reached if run.distributed else ():
        fact = reach.fact
        if waits(reach):
            deleted = []
        elif isinstance(fact, Noted) and fact.name == REMOVES and (path := made_path(fact)):
            if reach.ranks != ALL and not reach.unsure:
                deleted.append((reach, path.key))
        elif isinstance(fact, Noted) and (path := made_path(fact)) and not (reach.unsure or reach.attempted):
            inside = set(parts(path.key))
            late = [at for at, key in deleted if key in inside and together(at, reach) and reach.ranks & ~at.ranks]
            if late and same_on_ranks(path.key):
                message = "ranks make this directory without waiting for the rank that deletes it, which may delete it "
                message += f"with what they write there (line {late[-1].fact.site.line})"
                yield from violation_at(script, in_function_of(reach, late), message, 0.75)


def _reads(script: Script, run: Run) -> Iterator[Violation]:
    written: list[tuple[Reach, Key]] = []
    for reach in run.reached if run.distributed else ():
        fact = reach.fact
        if waits(reach):
            written = []  # the rank that writes comes there when it has written
        elif isinstance(fact, Noted) and (path := written_path(fact)):
            if reach.ranks != ALL and not reach.unsure:
                written.append((reach, path.key))
        elif isinstance(fact, Noted) and (path := read_path(fact)):
            early = [at for at, key in written if key is path.key and together(at, reach) and reach.ranks & ~at.ranks]
            early = [at for at in early if not _may_wait_between(script, at, reach)]
            asks = any(each.test.differs_by & LOCAL for each in reach.conditions)
            if early and same_on_ranks(path.key) and not (reach.unsure or reach.attempted or asks):
                line = early[-1].fact.site.line
                yield from violation_at(
                    script,
                    in_function_of(reach, early),
                    f"ranks read this file without waiting for the rank that writes it (line {line})",
                    0.8,
                    patch=partial(wait_for_writer, script, reach),
                )


def _may_wait_between(script: Script, first: Reach, second: Reach) -> bool:
    """Return whether the script calls a function between two facts that could not be followed to its end."""
    before, after, unfinished = script.place(first), script.place(second), script.evaluated.unfinished
    if not unfinished or before is None or after is None:
        return False
    lines = range(before.line + 1, after.line)
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    return any(each.lineno in lines and last_name(each.func) in unfinished for each in calls)


def _downloaded(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the data sets that ranks open while another one downloads them to the same directory."""
    begun: list[tuple[Reach, str, Key]] = []
    for reach in run.reached if run.distributed else ():
        fact = reach.fact
        if waits(reach):
            begun = []
        elif isinstance(fact, Noted) and fact.name.startswith(VISION) and (root := argument(fact, 0, "root")):
            early = [
                at
                for at, name, key in begun
                if name == fact.name and key is root.key and together(at, reach) and reach.ranks & ~at.ranks
            ]
            if early and not (reach.unsure or reach.attempted):
                line = early[-1].fact.site.line
                message = f"ranks open this data set without waiting for the rank that downloads it (line {line})"
                patch = partial(wait_for_writer, script, reach)
                yield from violation_at(script, in_function_of(reach, early), message, 0.8, patch=patch)
            elif (asked := argument(fact, -1, "download")) and asked.key is run.keys.true and not reach.unsure:
                begun += [(reach, fact.name, root.key)] if reach.ranks != ALL else []


def _taken_away(script: Script, run: Run) -> Iterator[Violation]:
    """Yield where a rank deletes or moves a file that other ranks may still be reading."""
    reads: list[tuple[Reach, Key]] = []
    for reach in run.reached if run.distributed else ():
        fact = reach.fact
        if waits(reach):
            reads = []
        elif isinstance(fact, Noted) and (path := read_path(fact)):
            if reach.several and not any(each.test.differs_by & LOCAL for each in reach.conditions):
                reads.append((reach, path.key))
        elif isinstance(fact, Noted) and (path := _taken_path(fact)) and not (reach.unsure or reach.attempted):
            below = fact.name == REMOVES
            late = [
                at
                for at, key in reads
                if (path.key in parts(key) if below else key is path.key)
                and together(at, reach)
                and at.ranks & ~reach.ranks
            ]
            if late and same_on_ranks(path.key):
                message = "this file is deleted or moved without waiting for the ranks that read it"
                yield from violation_at(script, reach, f"{message} (line {late[-1].fact.site.line})", 0.75)


def _writes_below(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the files that ranks write into a directory which another rank has just made or emptied."""
    changed: list[tuple[Reach, Key]] = []
    of_caller = run.function is not None and not script.evaluated.is_single  # which gives it a rank
    for reach in run.reached if run.distributed or of_caller else ():
        fact = reach.fact
        if waits(reach):
            changed = []
        elif isinstance(fact, Noted) and (folder := made_path(fact)):
            if reach.ranks == ALL:
                made = set(parts(folder.key)) if fact.name == "os.makedirs" else {folder.key}
                changed = [(at, key) for at, key in changed if key not in made]
            elif not reach.unsure:
                changed.append((reach, folder.key))
        elif isinstance(fact, Noted) and (path := written_path(fact)) and not (reach.unsure or reach.attempted):
            inside = set(parts(path.key))
            early = [at for at, key in changed if key in inside and together(at, reach) and reach.ranks & ~at.ranks]
            if early:
                line = early[-1].fact.site.line
                message = (
                    f"ranks write here without waiting for the rank that makes or empties the directory (line {line})"
                )
                between_nodes = not reach.ranks & ~FIRST_OF_NODES  # mostly long after the directory is there
                yield from violation_at(script, reach, message, 0.75, severity="info" if between_nodes else None)


def waits(reach: Reach) -> bool:
    """Return whether a rank may wait there for the others: in a group of its own for some, and they for more."""
    fact = reach.fact
    if isinstance(fact, Event) or waits_in_store(reach):
        return True
    if isinstance(fact, Noted) and fact.name == ".prepare":  # of a model: DDP compares the parameters of all ranks
        return any("loader" not in value.facts for value in fact.values)
    if not isinstance(fact, Noted) or fact.name not in COLLECTIVES:
        return False
    group = argument(fact, COLLECTIVES[fact.name], "group")
    return group is not None and group.facts & {"members", "own"} != {"members"}


def made_path(fact: Noted) -> Value | None:
    """Return the path of a directory that a call makes or deletes."""
    if fact.name == ".mkdir":
        return fact.owner
    return argument(fact, 0, "name", "path") if fact.name in ("os.makedirs", "os.mkdir", REMOVES) else None


def written_path(fact: Noted) -> Value | None:
    """Return the path of a file that a call writes."""
    if fact.name == "open" and _mode(fact)[:1] not in ("w", "x"):
        return None
    return _path_in(fact, SAVES.get(fact.name) or REPLACES.get(fact.name) or DOWNLOADS.get(fact.name))


def _taken_path(fact: Noted) -> Value | None:
    """Return the path of a file that a call deletes or moves away."""
    if fact.name == ".unlink":
        return fact.owner
    return argument(fact, 0, "path", "src") if fact.name in ("os.remove", "os.unlink", REMOVES, *MOVES) else None


def read_path(fact: Noted) -> Value | None:
    """Return the path of a file that a call reads."""
    if fact.name == "open":
        return argument(fact, 0, "file") if _mode(fact)[:1] == "r" else None
    return _path_in(fact, READS.get(fact.name))


def _path_in(fact: Noted, at: tuple[int, str] | None) -> Value | None:
    """Return the argument of a call that is a path, by its place and name; the place -1 is the object of the method."""
    return None if at is None else fact.owner if at[0] < 0 else argument(fact, *at)


def _mode(opened: Noted) -> str:
    """Return the mode in which a file is opened, an empty text if it is not known."""
    given = argument(opened, 1, "mode")
    return "r" if given is None else str(given.key.value) if given.key.is_constant else ""
