"""DW452: parameters that only one rank steps, and that it does not send to the others."""

from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.torch_classes import is_optimizer
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .averaged_by_hand import by_hand

PREFIX = "torch.distributed."
SENDS = (
    PREFIX + "broadcast",
    PREFIX + "all_gather",
    PREFIX + "all_gather_into_tensor",
    PREFIX + "all_gather_coalesced",
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the steps of optimizers with every n-th parameter, behind which the ranks do not exchange what changed."""
    owned = {
        each.fact.result.key
        for each in run.reached
        if isinstance(each.fact, Noted) and is_optimizer(each.fact.name) and _is_dealt(each.fact)
    }
    if not owned or not by_hand(run):
        return
    for reach, fact in run.of(".step"):
        if fact.owner is None or fact.owner.key not in owned or not reach.loops or not reach.several:
            continue
        behind = run.reached[run.reached.index(reach) + 1 :]
        sent = [each for each in behind if each.name in SENDS and each.loops[:1] == reach.loops[:1]]
        if not sent and not any(each.name.startswith(PREFIX) and each.loops[:1] == reach.loops[:1] for each in behind):
            yield from violation_at(
                script,
                reach,
                "each rank steps its own part of the parameters, and nothing sends them to the others: each model has "
                "old parameters for the rest",
                0.8,
            )
        for each in sent:
            yield from _from_one(script, each, reach.fact.site.line)
        return


def _is_dealt(made: Noted) -> bool:
    """Return whether an optimizer gets those parameters of a list whose number belongs to the rank."""
    given = argument(made, 0, "params")
    if given is None or given.key.op != "built":
        return False
    count, *rest = given.key.args
    return any(
        test.op == "compare" and test.differs_by & BY_RANK and any(part.op == "number" for part in parts(test))
        for test in rest[1:count]
    )


def _from_one(script: Script, sent: Reach, line: int) -> Iterator[Violation]:
    """Yield the broadcasts of all parameters by one rank."""
    assert isinstance(sent.fact, Noted)
    root = argument(sent.fact, 1, "src")
    if sent.name == PREFIX + "broadcast" and root and _is_number(root.key):
        yield from violation_at(
            script,
            sent,
            f"every parameter is sent by rank {root.key.value}, and each rank has stepped its own part (line {line}): "
            "what the others have stepped is lost",
            0.8,
            related=[RelatedPlace(path=script.source.path, line=line, message="the step")],
        )


def _is_number(key: Key) -> bool:
    return key.is_constant and type(key.value) is int
