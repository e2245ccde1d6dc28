"""Losses, models and metrics of Accelerate, clipping with DeepSpeed, and data of Lightning."""

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import KNOWLEDGE, lines

ACCELERATE = """
import evaluate
from torch import nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
steps = 4
accelerator = Accelerator({0})
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
test = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
"""
PREPARED = "model, optimizer, loader, test = accelerator.prepare(model, optimizer, loader, test)\n"
ACCUMULATES = "gradient_accumulation_steps=steps"
EACH = (
    "for (x,) in loader:\n    accelerator.backward(model(x).mean())\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
IN_CONTEXT = """
for (x,) in loader:
    with accelerator.accumulate(model):
        loss = model(x).mean()
        accelerator.backward({})
        optimizer.step()
        optimizer.zero_grad()
"""
BY_REMAINDER = """
for i, (x,) in enumerate(loader):
    accelerator.backward(model(x).mean())
    if (i + 1) % steps == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
UNSHARED = {
    "a step for each batch": EACH,
    "divided twice": IN_CONTEXT.format("loss / steps"),
    "divided by the attribute": IN_CONTEXT.format("loss / accelerator.gradient_accumulation_steps"),
}
SHARED = {"divided by Accelerate": IN_CONTEXT.format("loss"), "a step by the remainder": BY_REMAINDER}


@pytest.mark.parametrize("code", UNSHARED.values(), ids=UNSHARED.keys())
def test_losses_divided_for_nothing_or_twice_are_found(code: str) -> None:
    assert len(lines(ACCELERATE.format(ACCUMULATES) + PREPARED + code, "DW315")) == 1


@pytest.mark.parametrize("code", SHARED.values(), ids=SHARED.keys())
def test_losses_divided_once_are_not(code: str) -> None:
    assert lines(ACCELERATE.format(ACCUMULATES) + PREPARED + code, "DW315") == []


def test_without_accumulation_nothing_divides_a_loss() -> None:
    assert lines(ACCELERATE.format("") + PREPARED + EACH, "DW315") == []


NOT_MODELS = "optimizer, loader = accelerator.prepare(optimizer, loader)\n"
ONE_BY_ONE = "model = accelerator.prepare(model)\noptimizer = accelerator.prepare(optimizer)\n"


def test_an_optimizer_without_its_model_is_found() -> None:
    assert lines(ACCELERATE.format("") + NOT_MODELS + EACH, "DW316") == [NOT_MODELS.strip()]


@pytest.mark.parametrize("prepare", [PREPARED, ONE_BY_ONE, ONE_BY_ONE + "loader = accelerator.prepare(loader)\n"])
def test_a_model_and_its_optimizer_are_not(prepare: str) -> None:
    assert lines(ACCELERATE.format("") + prepare + EACH, "DW316") == []


METRIC = """
metric = evaluate.load("accuracy")
for (x,) in test:
    predictions = model(x).round()
    {}
print(metric.compute())
"""


def test_metrics_of_the_batches_of_a_rank_are_found() -> None:
    added = "metric.add_batch(predictions=predictions, references=x)"
    assert lines(ACCELERATE.format("") + PREPARED + METRIC.format(added), "DW319") == [added]
    gathered = "metric.add_batch(predictions=accelerator.gather_for_metrics(predictions), references=x)"
    assert lines(ACCELERATE.format("") + PREPARED + METRIC.format(gathered), "DW319") == []
    assert lines(ACCELERATE.format("") + METRIC.format(added), "DW319") == []


ENGINE = """
import deepspeed
from torch import nn
net = nn.Linear(4, 1)
engine, optimizer, loader, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds.json")
for (x,) in loader:
    engine.backward(engine(x).mean())
    {}
    engine.step()
"""


def test_clipping_past_the_engine_is_found() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(engine.parameters(), 1.0)"
    assert lines(ENGINE.format(clip), "DW499") == [clip]
    assert lines(ENGINE.format("norm = engine.get_global_grad_norm()"), "DW499") == []


LIGHTNING = """
import lightning as L
from torch.utils.data import DataLoader, DistributedSampler
class Data(L.LightningDataModule):
{}
    def train_dataloader(self):
        return DataLoader(self.rows, {})
L.Trainer(devices=2, strategy="ddp"{}).fit(Model(), Data())
"""
SETS = "    def {}(self, stage=None):\n        self.rows = torch.load('rows.pt')\n"
READS = "    def prepare_data(self):\n        torch.save(download(), 'rows.pt')\n"


def rules(text: str) -> set[str]:
    """Return the rules of the findings in a script for Lightning."""
    return {each.rule for each in review_text(text, "train.py", KNOWLEDGE)}


def test_data_that_the_trainer_of_lightning_leaves_alone_are_found() -> None:
    alone = ", use_distributed_sampler=False"
    assert "DW317" in rules(LIGHTNING.format(SETS.format("setup"), "8, shuffle=True", alone))
    assert "DW317" not in rules(LIGHTNING.format(SETS.format("setup"), "8, sampler=DistributedSampler(rows)", alone))
    assert "DW317" not in rules(LIGHTNING.format(SETS.format("setup"), "8, shuffle=True", ""))


def test_attributes_that_prepare_data_sets_are_found() -> None:
    assert "DW318" in rules(LIGHTNING.format(SETS.format("prepare_data"), "8", ""))
    assert "DW318" not in rules(LIGHTNING.format(READS + SETS.format("setup"), "8", ""))
    assert "DW318" not in rules(LIGHTNING.format(SETS.format("prepare_data") + SETS.format("setup"), "8", ""))
