"""DW458: gradients that are checked for overflow before they are averaged over the ranks."""

import re
from collections.abc import Iterator

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.noted_calls import FINITE
from ...training_script.model.reach import Reach, Run, argument
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import in_function_of, violation_at
from .averaged_by_hand import by_hand

PREFIX = "torch.distributed."
COUNTS = {"constant", "compare", "binary", "not", "and", "or", "number", "counted", "length", "options", "attribute"}
# What a script reduces over the ranks itself, so that all skip the step together.
FOUND_OVERFLOW = re.compile(r"found_inf")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the checks of one rank's gradients by which it decides about a step with those of all."""
    yield from _of_scalers(script, run)
    yield from _of_own_tests(script, run)


def _of_own_tests(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the tests for finite gradients before the reduction by hand, where a condition leads to the step."""
    reduces = by_hand(run)
    tested = averaged = None
    for reach in run.reached if reduces else ():
        if reach.name == ".backward":
            tested = averaged = None
        elif (
            reach.name in FINITE and averaged is None and isinstance(reach.fact, Noted) and _is_of_gradient(reach.fact)
        ):
            tested = reach if reach.several else None
        elif tested and any(reach is each for each in reduces):
            averaged = reach
        elif isinstance(reach.fact, Noted) and reach.name.removeprefix(PREFIX) in GROUP_PLACE:
            tested = None  # the ranks may agree on what each has found
        elif tested and averaged and reach.name == ".step" and reach.loops == tested.loops[: len(reach.loops)]:
            new = [
                each for each in reach.conditions if each not in averaged.conditions and not _is_of_rounds(each.test)
            ]
            if new and reach.loops:
                line = averaged.fact.site.line
                yield from violation_at(
                    script,
                    in_function_of(tested, [reach]),
                    "each rank looks for infinite gradients among its own, and leaves the step out by what it finds "
                    f"(line {new[-1].site.line}), but they are averaged later (line {line}): the models of the ranks "
                    "differ from then on",
                    0.75,
                    related=[
                        RelatedPlace(path=averaged.fact.site.path, line=line, message="averaged here"),
                        RelatedPlace(path=new[-1].site.path, line=new[-1].site.line, message="decided here"),
                    ],
                )
                return


def _is_of_rounds(test: Key) -> bool:
    """Return whether a condition asks for nothing but numbers of rounds, as in accumulation."""
    return all(part.op in COUNTS for part in parts(test))


def _is_of_gradient(fact: Noted) -> bool:
    given = fact.owner or argument(fact, 0, "input")
    return given is not None and "gradient" in given.facts


def _of_scalers(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the calls of ``unscale_`` between the backward pass and the reduction by hand."""
    reduces = [] if script.mentions(FOUND_OVERFLOW) else by_hand(run)
    checked: Reach | None = None
    for reach in run.reached if reduces else ():
        if reach.name == ".backward":
            checked = None
        elif reach.name == ".unscale_":
            checked = reach
        elif checked and any(reach is each for each in reduces) and checked.loops[:1] == reach.loops[:1]:
            line = reach.fact.site.line
            yield from violation_at(
                script,
                in_function_of(checked, [reach]),
                f"unscale_ looks for infinite gradients of this rank, and they are averaged later (line {line}): one "
                "rank skips the step, the others take it with what is not finite",
                0.8,
                related=[RelatedPlace(path=reach.fact.site.path, line=line, message="averaged here")],
            )
            return
