"""DW505: files of other ranks, by their names or by a listing of a directory, before the ranks have written them."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, LOCAL, Key, parts
from ...training_script.model.library_calls import LISTING_METHODS, LISTINGS
from ...training_script.model.library_effects import DOWNLOADS, REPLACES
from ...training_script.model.library_effects import READS as READ
from ...training_script.model.reach import ALL, Reach, Run, argument, together
from ..patches.shared_values import wait_for_writer
from ..rule_context import Script, Violation
from ..violations import in_function_of, violation_at
from .early_reads import SAVES, read_path, waits, written_path

HOLE = "\0"  # a part of a path that only the run decides
COUNTED = ("number", "element")  # what a loop over ranks gives
LISTS = (*LISTINGS, *(f".{name}" for name in LISTING_METHODS))
OF_NAMES = ("glob.glob", "glob.iglob", ".glob", ".rglob")
WRITES, READS = {*SAVES, *REPLACES, *DOWNLOADS}, {*READ, *LISTS, "open"}
WAITS = "sleep("  # a loop that looks for files until they are there


class _Written(NamedTuple):
    """A file that ranks have written since they last waited for each other."""

    reach: Reach
    path: Key
    name: str

    @property
    def of_each(self) -> bool:
        """True if each rank has written one with its rank in the name."""
        return bool(self.path.differs_by & BY_RANK)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reads and listings of files that other ranks write without a wait in between."""
    if not run.distributed or WRITES.isdisjoint(run.places) or READS.isdisjoint(run.places) or script.mentions(WAITS):
        return
    written: list[_Written] = []
    for reach in run.reached:
        fact = reach.fact
        if waits(reach):
            written = []
        elif not isinstance(fact, Noted) or reach.unsure or reach.attempted:
            continue
        elif (path := written_path(fact)) and not path.key.differs_by & LOCAL:
            written.append(_Written(reach, path.key, template(path.key)))
        elif path := read_path(fact):
            early = [each for each in written if _is_of_other(each, path.key) and together(each.reach, reach)]
            yield from _early(script, reach, early, "ranks read what each of them writes here")
        elif fact.name in LISTS and (listed := _listed(fact)):
            early = [
                each for each in written if _is_listed(each, reach, listed, fact.name) and together(each.reach, reach)
            ]
            yield from _early(script, reach, early, "ranks look here for files")


def _early(script: Script, reach: Reach, early: list[_Written], what: str) -> Iterator[Violation]:
    if not early:
        return
    writes = [each.reach for each in early]
    line = writes[-1].fact.site.line
    yield from violation_at(
        script,
        in_function_of(reach, writes),
        f"{what} without waiting for the ranks that write them (line {line}): some may be missing, or half written",
        0.75,
        patch=partial(wait_for_writer, script, reach) if reach.by_all else None,
    )


def _is_of_other(written: _Written, path: Key) -> bool:
    """Return whether a path may be that of what another rank has written."""
    name = written.name
    last = name.rpartition("/")[2].replace(HOLE, "")
    counted = not path.differs_by & BY_RANK and any(part.op in COUNTED for part in parts(path))
    return written.of_each and counted and HOLE in name and len(last) > 1 and template(path) == name


def _listed(fact: Noted) -> str:
    """Return the pattern of the paths that a call lists, "" if nothing of it is known."""
    if not fact.name.startswith("."):
        path = argument(fact, 0, "path", "pathname")
        known = template(path.key) if path and not path.key.differs_by & BY_RANK else ""
    else:
        path, pattern = fact.owner, argument(fact, 0, "pattern")
        own = (
            path is None or path.key.differs_by & BY_RANK or (pattern is not None and pattern.key.differs_by & BY_RANK)
        )
        known = "" if own or path is None else template(path.key)
        if known and pattern is not None:
            known = f"{known.rstrip('/')}/{template(pattern.key)}"
    return known if fact.name in OF_NAMES or not known else f"{known.rstrip('/')}/*"


def _is_listed(written: _Written, reach: Reach, pattern: str, name: str) -> bool:
    """Return whether a listing of some ranks is to have what others have just written."""
    folder = pattern.rpartition("/")[0]
    if not folder.replace(HOLE, "") or name not in LISTS:
        return False
    others = reach.ranks & ~written.reach.ranks if not written.of_each else written.reach.ranks & ~(reach.ranks & 1)
    if written.reach.ranks == ALL and not written.of_each:
        return False
    return bool(others) and fnmatchcase(written.name, pattern.replace("[", "[[]"))


def template(path: Key) -> str:
    """Return the text of a path, with ``HOLE`` for each part that only the run decides."""
    match path.op, path.args:
        case "constant", (str() as text,):
            return text
        case "text", given:
            return "".join(map(template, given))
        case "binary", ("Add", Key() as left, Key() as right):
            return template(left) + template(right)
        case "binary", ("Div", Key() as folder, Key() as name):
            return f"{template(folder).rstrip('/')}/{template(name)}"
        case "binary", ("Mod", Key(op="constant", args=(str() as text,)), _):
            return _filled(text)
        case "call", ("os.path.join", *given):
            return "/".join(template(each).rstrip("/") for each in given if isinstance(each, Key))
        case "call", ("pathlib.Path", Key() as inner, *rest) if not rest:
            return template(inner)
        case _:
            return HOLE


def _filled(text: str) -> str:
    """Return a text for ``%`` with a hole for each value."""
    first, *rest = text.split("%")
    return first + "".join(HOLE + each.lstrip("0123456789.-+ ")[1:] for each in rest)
