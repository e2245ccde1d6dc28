"""DW412: what a helper writes for one rank at some of its calls, and for every rank at another one."""

from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK
from ...training_script.model.library_effects import DELETES, EXPERIMENTS, MOVES, REPLACES, UPLOADS
from ...training_script.model.reach import FIRST_OF_NODES, Condition, Reach, Run, argument, same_on_ranks, without_not
from ...training_script.model.sequences import Site
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, contains_line
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .repeated_files import RACE

WRITES = {**REPLACES, "torch.save": (1, "f"), ".save_pretrained": (0, "save_directory")}
FIRST = (1, FIRST_OF_NODES)
OTHERS = (*EXPERIMENTS, *UPLOADS, *DELETES, *MOVES)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls without a condition on the rank, where every other call of the same helper has one.

    They show that several ranks come there, though nothing else in the function does.
    """
    if run.distributed or run.function is None:
        return
    by_site: dict[Site, list[Reach]] = {}
    for reach, fact in run.of(*WRITES, *OTHERS):
        if reach.calls and script.is_here(reach) and (fact.name not in WRITES or _is_shared(fact)):
            by_site.setdefault(fact.site, []).append(reach)
    reported: set[Site] = set()
    for reaches in by_site.values():
        guarded = [each for each in reaches if each.ranks in FIRST and not each.unsure and _asks_for_rank(each)]
        free = [each for each in reaches if each.by_all]
        for reach in free if len(guarded) > len(free) else ():
            call, others = reach.calls[-1], [each for each in guarded if each.calls[-1].path == script.source.path]
            if (
                call in reported
                or not others
                or not all(_follows(each, others[0]) for each in _of_caller(script, reach))
            ):
                continue
            reported.add(call)
            line = others[0].calls[-1].line
            yield from violation_at(
                script,
                reach._replace(fact=reach.fact._replace(site=call), calls=reach.calls[:-1]),
                f"every rank writes what line {reach.fact.site.line} writes: the other calls are for one rank only, as "
                f"that in line {line}",
                0.7,
                cause=RACE,
                severity="warning",
                related=[RelatedPlace(path=script.source.path, line=line, message="for one rank")],
            )


def _is_shared(fact: Noted) -> bool:
    """Return whether the file that a call may write is the same for every rank."""
    place, name = WRITES[fact.name]
    path = fact.owner if place < 0 else argument(fact, place, name)
    mode = argument(fact, 1, "mode")
    writes = fact.name != "open" or (mode is not None and mode.key.is_constant and str(mode.key.value)[:1] in "wax")
    return path is not None and writes and same_on_ranks(path.key)


def _of_caller(script: Script, reach: Reach) -> list[Condition]:
    """Return the conditions around the call of a helper, without those inside of it."""
    written = reach.fact.site.line
    functions = [node for node in nodes_below(script.source.tree) if isinstance(node, FUNCTIONS)]
    helper = max((each for each in functions if contains_line(each, written)), key=lambda each: each.lineno)
    return [each for each in reach.conditions if not contains_line(helper, each.site.line)]


def _follows(condition: Condition, other: Reach) -> bool:
    known = dict(without_not(each.test, each.truth) for each in other.conditions)
    test, truth = without_not(condition.test, condition.truth)
    return known.get(test) == truth


def _asks_for_rank(reach: Reach) -> bool:
    return any(each.test.spread & BY_RANK for each in reach.conditions)
