"""DW477: schedules counted in epochs that Accelerate steps once for each rank."""

from collections.abc import Iterator

from ...training_script.model.function_steps import Noted, Rounds
from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Reach, Run
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .schedules import SCHEDULES

# What makes a prepared schedule step once, or the script count the steps of all ranks.
COUNTS_RANKS = ("split_batches", "step_scheduler_with_optimizer", "num_processes", "world_size")
PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
TRAINS = (".backward", ".step")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the steps of prepared schedules behind the loop over the batches."""
    prepares = [fact for _, fact in run.of(".prepare") if fact.owner and "accelerator" in fact.owner.facts]
    if not prepares or any(map(script.mentions, COUNTS_RANKS)):
        return
    given = {value.key for fact in prepares for value in fact.values}
    made = {
        each.fact.result.key: each.fact
        for each in run.reached
        if isinstance(each.fact, Noted) and each.fact.name.startswith(SCHEDULES) and each.fact.result.key in given
    }
    steps = [(reach, fact, schedule) for reach, fact in run.of(".step") if (schedule := _prepared_schedule(fact, made))]
    trained = [each for each, fact in run.of(*TRAINS) if fact.owner and not _prepared_schedule(fact, made)]
    for reach, fact, schedule in steps:
        others = [each for each, _, other in steps if other is schedule and each is not reach]
        by_number = bool(fact.values or fact.named) and schedule.name != PLATEAU
        if by_number or any(len(each.loops) > len(reach.loops) for each in others) or not reach.several:
            continue
        if reach.loops and any(_is_in_loop_over_batches(each, reach) for each in trained):
            yield from violation_at(
                script,
                reach,
                "a prepared schedule steps as often as there are ranks: this one is stepped once for each epoch, and "
                "comes to its end that many times too early",
                0.8,
                related=[RelatedPlace(path=schedule.site.path, line=schedule.site.line, message="made here")],
            )


def _prepared_schedule(fact: Noted, made: dict[Key, Noted]) -> Noted | None:
    """Return the call that made the schedule whose method is called, if prepare has got it."""
    owner = fact.owner.key if fact.owner else None
    if owner is None or owner.op != "prepared":
        return None
    return next((made[part] for part in owner.args if isinstance(part, Key) and part in made), None)


def _is_in_loop_over_batches(trains: Reach, step: Reach) -> bool:
    """Return whether a step of the training is in a loop over prepared batches behind which the schedule is stepped."""
    inner = trains.loops[len(step.loops) :]
    return trains.loops[: len(step.loops)] == step.loops and len(inner) == 1 and _goes_over_prepared(inner[0])


def _goes_over_prepared(loop: Rounds) -> bool:
    return any(part.op == "prepared" for part in parts(loop.amount))
