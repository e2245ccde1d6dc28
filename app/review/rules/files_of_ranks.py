"""DW506: files with the rank in their names that all ranks read and only some have written."""

from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, DIFFERS, LOCAL, TOUCHED, Key, parts
from ...training_script.model.reach import ALL, Reach, Run
from ...training_script.model.sequences import Event, Site
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .collective_arguments import ranks_of
from .early_reads import read_path, written_path


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reads of a file that this rank would have had to write, as another rank has written its own."""
    written: dict[Key, Reach] = {}
    own_names: dict[Key, Reach] = {}  # what some ranks write under names that each rank makes for itself
    for reach in run.reached if run.distributed else ():
        fact = reach.fact
        if not isinstance(fact, Noted):
            continue
        if path := written_path(fact):
            ranks = ranks_of(reach)
            if path.key.differs_by & LOCAL and reach.ranks != ALL and not reach.unsure:
                own_names[path.key] = reach
            written |= dict.fromkeys((run.keys.specialise(path.key, rank) for rank in ranks), reach)
        elif (path := read_path(fact)) and path.key in own_names:
            at = own_names[path.key].fact.site
            if reach.several and reach.ranks & ~own_names[path.key].ranks and not reach.attempted:
                yield from violation_at(
                    script,
                    _where_made(script, reach, path.key),
                    f"each rank makes this name for itself, and only some have written under it (line {at.line}): the "
                    f"others find nothing (line {fact.site.line})",
                    0.8,
                    related=[RelatedPlace(path=at.path, line=at.line, message="written here")],
                )
        elif path and path.key.differs_by & (DIFFERS | TOUCHED) == BY_RANK:
            surely = (
                reach.several
                and not reach.attempted
                and all(each.test.differs_by & BY_RANK for each in reach.conditions)
            )
            names = [run.keys.specialise(path.key, rank) for rank in ranks_of(reach)]
            own = [written[name] for name in names if name in written]
            if surely and own and len(own) < len(names) and not any(each.unsure for each in own):
                line = own[0].fact.site.line
                yield from violation_at(
                    script,
                    reach,
                    f"each rank reads a file with its own number in the name, and not every rank has written one "
                    f"(line {line})",
                    0.8,
                    related=[RelatedPlace(path=own[0].fact.site.path, line=line, message="written here")],
                )


def _where_made(script: Script, reach: Reach, path: Key) -> Reach:
    """Return a fact as the place in this script at which each rank gets a value of its own for a path."""
    made = next((part for part in parts(path) if part.op == "local" and script.source.path in part.args), None)
    if made is None or isinstance(reach.fact, Event):
        return reach
    _, file, line, column, *_ = made.args
    return reach._replace(fact=reach.fact._replace(site=Site(file, line, column, line)), calls=())
