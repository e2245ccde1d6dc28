"""Rounds without synchronisation of gradients that no_sync must not cover: those whose gradients a step applies."""

import pytest
from helpers.review_snippets import found

START = """
import contextlib
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
HELD = """
def train_epoch(model, loader, optimizer):
    for n, batch in enumerate(loader):
        context = contextlib.nullcontext
        if options.ddp:
            context = model.no_sync if {condition} else context
        with context():
            model(batch).sum().backward()
        if (n + 1) % 4 == 0:
            optimizer.step()
train_epoch(model, loader, optimizer)
"""
PARTS = """
for batch in loader:
    parts = batch.chunk(4)
    for n, part in enumerate(parts):
        context = model.no_sync() if {condition} else contextlib.nullcontext()
        with context:
            model(part).sum().backward()
    optimizer.step()
"""
ROUNDS = """
for batch in loader:
    for n in range(options.accumulate):
        if {condition}:
            with model.no_sync():
                model(batch).sum().backward()
        else:
            model(batch).sum().backward()
    optimizer.step()
"""
WHOLE_WINDOW = """
class Trainer:
    def __init__(self, accumulate={length}):
        self.model, self.accumulate = model, accumulate
    def update(self, parts):
        for n, part in {rounds}:
            reduces = {condition}
            with contextlib.nullcontext() if reduces else self.model.no_sync():
                ({loss}).backward()
        optimizer.step()
trainer = Trainer()
for batch in loader:
    trainer.update(READ)
"""
DIVIDED = "self.model(part).sum() / self.accumulate"


def whole_window(condition: str, rounds: str = "enumerate(parts)", loss: str = DIVIDED, read: str = "read()") -> str:
    """Return a program with a function that gets the batches of one window and makes the step behind them."""
    code = WHOLE_WINDOW.format(condition=condition, rounds=rounds, loss=loss, length=4)
    return code.replace("READ", read)


OF_KNOWN = "[torch.randn(2) * dist.get_rank() for _ in range(4)]"
FOUND = {
    "held in a name": HELD.format(condition="n % 4 != 0"),
    "the last part": PARTS.format(condition="n == len(parts) - 1"),
    "the last part, by an option": PARTS.format(condition="options.many and n == len(parts) - 1"),
    "the last round": ROUNDS.format(condition="n + 1 == options.accumulate"),
    "all rounds but the first": ROUNDS.format(condition="n > 0"),
    "each round of a loop over a range": ROUNDS.format(condition="n != options.accumulate"),
    "a number that the counter of a window never has": whole_window("n == self.accumulate"),
    "a number that is past the window": whole_window("not n < self.accumulate"),
    "the first batch of a window": whole_window("n % self.accumulate == 0", loss="self.model(part).sum()"),
    "a number that is past a list of known length": whole_window(
        "n == 4", loss="self.model(part).sum()", read=OF_KNOWN
    ),
    "a number that is past the pieces of a batch": PARTS.format(condition="n < 4").replace(
        "batch.chunk(4)", "torch.randn(8, 2).chunk(4)"
    ),
}
HEALTHY = {
    "held in a name": HELD.format(condition="(n + 1) % 4 != 0"),
    "all parts but the last": PARTS.format(condition="n < len(parts) - 1"),
    "all parts but the last, by an option": PARTS.format(condition="options.many and n != len(parts) - 1"),
    "all rounds but the last": ROUNDS.format(condition="n + 1 < options.accumulate"),
    "the last batch of a window": whole_window("(n + 1) % self.accumulate == 0"),
    "the last batch of a window whose loss is a sum": whole_window(
        "(n + 1) % self.accumulate == 0", loss="self.model(part).sum()"
    ),
    "the place of the last batch of a window": whole_window("n == self.accumulate - 1"),
    "a counter from one": whole_window("n == self.accumulate", rounds="enumerate(parts, start=1)"),
    "a number that may be the last place": whole_window("n == self.accumulate", loss="self.model(part).mean() / 2"),
    "the last place in a list of known length": whole_window("n == 3", read=OF_KNOWN),
    "a place in a list of unknown length": whole_window("n == 4", loss="self.model(part).sum()"),
    "a number past the window, and another that is not": ROUNDS.format(
        condition="n != options.accumulate and n != options.accumulate - 1"
    ),
    "the first round": ROUNDS.format(condition="n == 0 and options.accumulate > 1"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND.keys())
def test_round_of_a_step_without_synchronisation_is_found(code: str) -> None:
    (finding,) = found(START + code, "DW213")
    assert finding.branch is not None


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY.keys())
def test_rounds_before_the_step_need_no_synchronisation(code: str) -> None:
    assert found(START + code, "DW213") == []
