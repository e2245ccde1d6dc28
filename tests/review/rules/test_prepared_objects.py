"""DW266 and DW267: states of prepared models that are saved with the wrapper, and iterators that prepare gets."""

from pathlib import Path

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import KNOWLEDGE, lines

PREPARED = """
import itertools
from accelerate import Accelerator
from torch.utils.data import DataLoader
accelerator = Accelerator()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
{}
"""
SAVED = {
    "by itself": 'torch.save(model.state_dict(), "model.pt")',
    "in a mapping": 'torch.save({"model": model.state_dict(), "epoch": 1}, "model.pt")',
    "in a mapping by names": 'torch.save(dict(model=model.state_dict()), "model.pt")',
    "in a variable": 'state = model.state_dict()\ntorch.save(state, "model.pt")',
    "on the main process": 'if accelerator.is_main_process:\n    torch.save(model.state_dict(), "model.pt")',
}
SAVED_INSIDE = {
    "the state of accelerate": 'torch.save(accelerator.get_state_dict(model), "model.pt")',
    "of the inner model": 'torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")',
    "of the optimizer": 'torch.save(optimizer.state_dict(), "optimizer.pt")',
    "a state that is not saved": "first = model.state_dict()",
}
GENERATORS = """
def cycle(loader):
    while True:
        for batch in loader:
            yield batch

def forever(loader):
    while True:
        yield from loader

"""
LOADER = "loader = DataLoader(data, batch_size=4, shuffle=True)\n"
ITERATED = {
    "a generator": LOADER + "batches = accelerator.prepare(cycle(loader))",
    "one that delegates": LOADER + "model, batches = accelerator.prepare(model, forever(loader))",
    "of itertools": LOADER + "batches = accelerator.prepare(itertools.cycle(loader))",
    "in a variable": LOADER + "batches = cycle(loader)\nbatches = accelerator.prepare(batches)",
    "of a loader without a name": "batches = accelerator.prepare(cycle(DataLoader(data, batch_size=4)))",
}
SHARED = {
    "the loader": LOADER + "loader = accelerator.prepare(loader)\nbatches = cycle(loader)",
    "the loader and an iterator of it": LOADER + "batches = cycle(accelerator.prepare(loader))",
    "a schedule": LOADER
    + "schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps_per_epoch=len(loader))\n"
    "loader, schedule = accelerator.prepare(loader, schedule)",
    "a sampler of the ranks": "sampler = torch.utils.data.DistributedSampler(data)\n"
    "batches = accelerator.prepare(cycle(DataLoader(data, sampler=sampler)))",
}


@pytest.mark.parametrize("code", SAVED.values(), ids=SAVED.keys())
def test_a_state_that_is_saved_with_the_wrapper_is_found(code: str) -> None:
    (line,) = lines(PREPARED.format(code), "DW266")
    assert "model.state_dict()" in line


@pytest.mark.parametrize("code", SAVED_INSIDE.values(), ids=SAVED_INSIDE.keys())
def test_a_state_without_the_wrapper_is_not(code: str) -> None:
    assert lines(PREPARED.format(code), "DW266") == []


def test_a_trainer_that_saves_in_a_method_is_found() -> None:
    code = """
from accelerate import Accelerator
class Trainer:
    def __init__(self, model):
        self.accelerator = Accelerator()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.model, self.optimizer = self.accelerator.prepare(model, self.optimizer)
    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)
"""
    assert len(lines(code, "DW266")) == 1


@pytest.mark.parametrize("code", ITERATED.values(), ids=ITERATED.keys())
def test_an_iterator_that_prepare_gets_is_found(code: str) -> None:
    (line,) = lines(GENERATORS + PREPARED.format(code), "DW267")
    assert "accelerator.prepare(" in line


@pytest.mark.parametrize("code", SHARED.values(), ids=SHARED.keys())
def test_a_loader_that_prepare_gets_is_not(code: str) -> None:
    assert lines(GENERATORS + PREPARED.format(code), "DW267") == []


def test_a_loader_that_a_module_prepares_is_not(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("def prepared(accelerator, loader):\n    return accelerator.prepare(loader)\n")
    script = tmp_path / "train.py"
    script.write_text(
        "from accelerate import Accelerator\nfrom torch.utils.data import DataLoader\nfrom parts import prepared\n"
        "loader = prepared(Accelerator(), DataLoader(list(range(8)), batch_size=2))\n"
    )
    assert review_text(script.read_text(), str(script), KNOWLEDGE, ["DW267"]) == []
