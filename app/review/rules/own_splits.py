"""DW490: exchanges in which a rank expects from the others what it sends to them."""

from collections.abc import Iterator

from ...training_script.model.keys import DIFFERS
from ...training_script.model.reach import Run, argument
from ..rule_context import Script, Violation
from ..violations import violation_at

EXCHANGE = "torch.distributed.all_to_all_single"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the exchanges with parts of sizes that data of one rank decide, the same for what it sends and gets."""
    for reach, fact in run.of(EXCHANGE):
        expected = argument(fact, 2, "output_split_sizes")
        sent = argument(fact, 3, "input_split_sizes")
        if expected and sent and expected.key is sent.key and sent.key.differs_by & DIFFERS and reach.several:
            yield from violation_at(
                script,
                reach,
                "this rank expects as much from each other as it sends to it: how much that is, the data of the others "
                "decide, which have to send the numbers first",
                0.85,
            )
