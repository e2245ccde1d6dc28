"""DW116: what needs the process group behind the call that destroys it."""

from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.noted_calls import DESTROY, INIT
from ...training_script.model.reach import ALL, Reach, Run, argument
from ..rule_context import Script, Violation
from ..violations import in_function_of, violation_at
from .missing_groups import asks_for_group, needs_group


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW116: yield the first call that needs the process group after all ranks have destroyed it."""
    ended: Reach | None = None
    for reach in run.reached:
        if reach.name == INIT:
            ended = None
        elif ended and needs_group(script, run, reach) and _is_surely_before(ended, reach):
            if asks_for_group(script, reach):
                continue
            name = reach.name.rpartition(".")[2]
            yield from violation_at(
                script,
                in_function_of(reach, [ended]),
                f"{name} after the process group was destroyed (line {ended.fact.site.line}): this raises an error",
                0.85,
            )
            return
        elif reach.name == DESTROY and _ends_group(script, run, reach):
            ended = reach


def _ends_group(script: Script, run: Run, reach: Reach) -> bool:
    """Return whether a call destroys the process group of all ranks, there and not at the end of the program."""
    group = argument(reach.fact, 0, "group") if isinstance(reach.fact, Noted) else None
    of_all = group is None or group.key is run.keys.none
    return of_all and reach.ranks == ALL and reach.several and not reach.attempted and not reach.ends


def _is_surely_before(ended: Reach, reach: Reach) -> bool:
    """Return whether a rank that reaches the second fact has come to the first one before."""
    conditions = {(each.test, each.truth) for each in reach.conditions}
    held = (each for each in ended.conditions if not each.test.is_constant)
    return (
        ended.started == reach.started
        and reach.loops[: len(ended.loops)] == ended.loops
        and all((each.test, each.truth) in conditions for each in held)
    )
