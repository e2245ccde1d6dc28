"""The number that a repaired lab prints is that of the same training in one process, without any process group."""

import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from ddpwizard.knowledge.labs import read_labs
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LABS = read_labs()
WORLD_SIZE = 2
LossOf = Callable[..., torch.Tensor]


def script_of(lab: str) -> ModuleType:
    """Return the script of a lab as a module."""
    spec = importlib.util.spec_from_file_location(lab.replace("-", "_"), LABS[lab].directory / "train.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Any,
    loss_of: LossOf,
    *,
    batch_size: int,
    epochs: int,
    batches_per_step: int = 1,
) -> float:
    """Train with the batches of all ranks in each step, and return the last loss of rank 0."""
    samplers = [DistributedSampler(data, WORLD_SIZE, rank) for rank in range(WORLD_SIZE)]
    loaders = [DataLoader(data, batch_size, sampler=each, generator=torch.Generator()) for each in samplers]
    first = 0.0
    for epoch in range(epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for number, batches in enumerate(zip(*loaders, strict=True), 1):
            losses = [loss_of(model, *batch) / batches_per_step for batch in batches]
            (sum(losses) / WORLD_SIZE).backward()  # type: ignore[union-attr]
            first = losses[0].item()
            if number % batches_per_step == 0:
                optimizer.step()
                optimizer.zero_grad()
    return first


def squared_error(model: nn.Module, points: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(points), targets)


def sums(samples: int, width: int) -> TensorDataset:
    """Return random points with their sums."""
    points = torch.randn(samples, width)
    return TensorDataset(points, points.sum(dim=1, keepdim=True))


def accumulated() -> float:
    data = sums(512, 10)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return train(model, optimizer, data, squared_error, batch_size=8, epochs=5, batches_per_step=4)


def resumed() -> float:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = script_of("incomplete-resume").make_data()
    return train(model, optimizer, data, squared_error, batch_size=16, epochs=4)


def recomputed() -> float:
    script = script_of("ready-twice")
    points = torch.randn(256, 8)
    data = TensorDataset(points, (points.sum(dim=1) > 0).long())
    model = script.Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of(model: nn.Module, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(points), labels)

    return train(model, optimizer, data, loss_of, batch_size=32, epochs=2)


def reconstructed() -> float:
    script = script_of("unused-parameters")
    data = TensorDataset(torch.randn(256, 16))
    model = script.Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss_of(model: nn.Module, points: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(model(points), points)

    return train(model, optimizer, data, loss_of, batch_size=16, epochs=2)


def double_precision() -> float:
    data = script_of("wrap-before-device").make_data(256)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1)).to(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return train(model, optimizer, data, squared_error, batch_size=16, epochs=2)


def regression() -> float:
    data = sums(256, 8)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return train(model, optimizer, data, squared_error, batch_size=16, epochs=3)


def passed_around() -> float:
    """Return the sum of the norms of all ranks, each with its own block and those of the others."""
    attend = script_of("p2p-deadlock").attend
    blocks = [torch.randn(64, 16, generator=torch.Generator().manual_seed(rank)) for rank in range(WORLD_SIZE)]
    return sum(torch.stack([attend(own, each) for each in blocks]).sum(dim=0).norm().item() for own in blocks)


def all_parts() -> float:
    """Return the last mean loss of a training on the rows of all parts."""
    parts = [torch.randn(64, 8, generator=torch.Generator().manual_seed(number)) for number in range(WORLD_SIZE)]
    rows = torch.cat(parts)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss = torch.zeros(())
    for _ in range(3):
        loss = squared_error(model, rows, rows.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


TRUTHS: dict[str, Callable[[], float]] = {
    "accumulate-without-no-sync": accumulated,
    "incomplete-resume": resumed,
    "p2p-deadlock": passed_around,
    "rank-died-survivors-wait": all_parts,
    "ready-twice": recomputed,
    "unused-parameters": reconstructed,
    "wrap-before-device": double_precision,
    "wrong-nic": regression,
}


@pytest.mark.parametrize("lab", TRUTHS)
def test_result_of_a_repaired_lab_is_that_of_one_process(lab: str) -> None:
    torch.manual_seed(0)
    check = next(each for each in LABS[lab].checks if each.within)
    assert TRUTHS[lab]() == pytest.approx(check.value, abs=check.within)
