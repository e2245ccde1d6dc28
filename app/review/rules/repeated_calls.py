"""DW463: calls that may be made once, and are made again."""

from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.noted_calls import DESTROY, INIT
from ...training_script.model.reach import Reach, Run, together
from ..patches.init_once import init_once
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .missing_groups import asks_for_group

# Call: what makes it possible again, and whether it is counted by object.
ONCE: dict[str, tuple[str, bool]] = {INIT: (DESTROY, False), ".register_comm_hook": ("", True)}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW463: yield the second of two calls of which the first one is surely made before it in one process."""
    made: dict[tuple[str, object], Reach] = {}
    for reach in run.reached:
        if not isinstance(reach.fact, Noted):
            continue
        for name, (again, _) in ONCE.items():
            if reach.name == again:
                made = {key: each for key, each in made.items() if key[0] != name}
        if reach.name not in ONCE or reach.unsure or reach.attempted:
            continue
        fact, of_object = reach.fact, ONCE[reach.name][1]
        owner = fact.owner.key if of_object and fact.owner else None
        if of_object and not (fact.owner and "ddp" in fact.owner.facts):
            continue
        key = reach.name, owner
        before = made.get(key)
        if before is None:
            made[key] = reach
        elif _is_again(before, reach) and not asks_for_group(script, reach) and not asks_for_group(script, before):
            line = before.fact.site.line
            yield from violation_at(
                script,
                reach,
                f"{reach.name.rpartition('.')[2]} is called again (first in line {line}): this raises an error",
                0.85,
                related=[RelatedPlace(path=before.fact.site.path, line=line, message="called first here")],
                patch=partial(init_once, script, fact.node) if fact.name == INIT and script.is_here(reach) else None,
            )


def _is_again(before: Reach, reach: Reach) -> bool:
    """Return whether a rank that makes the second call has surely made the first one, in another place."""
    conditions = {(each.test, each.truth) for each in reach.conditions}
    held = (each for each in before.conditions if not each.test.is_constant)
    return (
        before.started == reach.started
        and (before.fact.site, before.calls) != (reach.fact.site, reach.calls)
        and reach.ranks & before.ranks == reach.ranks
        and together(before, reach)
        and all((each.test, each.truth) in conditions for each in held)
    )
