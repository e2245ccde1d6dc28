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
FOUND = {
    "held in a name": HELD.format(condition="n % 4 != 0"),
    "the last part": PARTS.format(condition="n == len(parts) - 1"),
    "the last part, by an option": PARTS.format(condition="options.many and n == len(parts) - 1"),
    "the last round": ROUNDS.format(condition="n + 1 == options.accumulate"),
    "all rounds but the first": ROUNDS.format(condition="n > 0"),
}
HEALTHY = {
    "held in a name": HELD.format(condition="(n + 1) % 4 != 0"),
    "all parts but the last": PARTS.format(condition="n < len(parts) - 1"),
    "all parts but the last, by an option": PARTS.format(condition="options.many and n != len(parts) - 1"),
    "all rounds but the last": ROUNDS.format(condition="n + 1 < options.accumulate"),
    "the first round": ROUNDS.format(condition="n == 0 and options.accumulate > 1"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND.keys())
def test_round_of_a_step_without_synchronisation_is_found(code: str) -> None:
    (finding,) = found(START + code, "DW213")
    assert finding.branch is not None


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY.keys())
def test_rounds_before_the_step_need_no_synchronisation(code: str) -> None:
    assert found(START + code, "DW213") == []
