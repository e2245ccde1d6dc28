"""DW420: losses of tensors that were gathered without their gradients."""

from collections.abc import Iterator

from ...training_script.model.reach import Run, argument
from ..rule_context import Script, Violation
from ..violations import violation_at

GATHERS = ("torch.distributed.all_gather", "torch.distributed.all_gather_into_tensor")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the gathers after which a loss has no way back to the model."""
    lost = [fact for _, fact in run.of(".backward") if fact.owner and "gathered" in fact.owner.facts - {"graph"}]
    if not any("graph" not in fact.owner.facts for fact in lost if fact.owner):
        return
    for reach, fact in run.of(*GATHERS):
        sent = argument(fact, 1, "tensor", "input_tensor")
        if sent and "graph" in sent.facts:
            yield from violation_at(
                script,
                reach,
                "the loss is made of gathered tensors alone, and this gather hands on no gradients: the model does not "
                "learn from it",
                0.8,
            )
