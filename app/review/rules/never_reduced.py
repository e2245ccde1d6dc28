"""DW213: no_sync around each backward pass of a model."""

import re
from collections.abc import Iterator

from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.reach import Run
from ...training_script.model.sequences import Event
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

REDUCES_ITSELF = re.compile(r"\.grad\b|reduce_gradients|_hook\(|flatten|[Aa]verage|to_vector")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the uses of no_sync that cover each backward pass of a model whose gradients nothing else reduces."""
    steps = [reach for reach, _ in run.of(".step") if reach.loops]
    learned = [reach for reach, fact in run.of(".backward") if fact.owner and "graph" in fact.owner.facts]
    reduced = any(isinstance(each.fact, Event) and each.fact.kind == BACKWARD for each in run.reached)
    if reduced or not learned or script.mentions(REDUCES_ITSELF):
        return
    for reach, _ in run.of(".no_sync"):
        step = next((each for each in steps if each.loops[:1] == reach.loops[:1] and reach.several), None)
        own = [each for each in reach.conditions if step and each not in step.conditions]
        if step and not own:
            line = step.fact.site.line
            message = f"no_sync covers each backward pass, that in front of the step (line {line}) as well: nothing "
            message += "reduces the gradients, and the ranks apply different ones"
            related = [RelatedPlace(path=step.fact.site.path, line=line, message="the step")]
            yield from violation_at(script, reach, message, 0.85, related=related)
            return
