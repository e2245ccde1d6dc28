"""Evaluation of all samples of a split on every rank: the ranks agree where they draw the split by one seed."""

import pytest
from helpers.review_snippets import found

PROGRAM = """
import random
import numpy as np
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

dist.init_process_group("gloo")
rank = dist.get_rank()
data = TensorDataset(torch.randn(400, 6, generator=torch.Generator().manual_seed(3)))
SEED
SPLIT
model = DDP(nn.Linear(6, 1))
best = 0
for epoch in range(4):
    right = 0
    with torch.no_grad():
        for (x,) in DataLoader(held_out, batch_size=20):
            right += (model(x) > 0).sum().item()
    if right > best:
        best = right
        dist.barrier()
"""
RANDOM_SPLIT = "train, held_out = random_split(data, [300, 100])"
OF_PART = "train, held_out = random_split(data, [0.75, 0.25])"
BY_GENERATOR = "train, held_out = random_split(data, [300, 100], generator=torch.Generator().manual_seed(NUMBER))"
SUBSET = "held_out = Subset(data, order[300:])"
PERMUTED = f"order = torch.randperm(len(data)).tolist()\n{SUBSET}"
OF_NUMPY = f"order = np.random.permutation(len(data))\n{SUBSET}"
OF_RNG = f"order = np.random.default_rng(NUMBER).permutation(len(data))\n{SUBSET}"
SHUFFLED = f"order = list(range(400))\nrandom.shuffle(order)\n{SUBSET}"
DRAWS = {
    "random_split": ("torch.manual_seed(NUMBER)", RANDOM_SPLIT),
    "random_split of shares": ("torch.manual_seed(NUMBER)", OF_PART),
    "random_split by a generator": ("", BY_GENERATOR),
    "randperm": ("torch.manual_seed(NUMBER)", PERMUTED),
    "permutation of numpy": ("np.random.seed(NUMBER)", OF_NUMPY),
    "permutation by a generator": ("", OF_RNG),
    "shuffle": ("random.seed(NUMBER)", SHUFFLED),
}


def rules(seed: str, split: str) -> list[str]:
    code = PROGRAM.replace("SEED", seed).replace("SPLIT", split)
    return [each.rule for each in found(code, "DW406") if each.severity != "info"]


@pytest.mark.parametrize("name", DRAWS)
def test_one_seed_on_all_ranks_gives_one_split(name: str) -> None:
    seed, split = (each.replace("NUMBER", "7") for each in DRAWS[name])
    assert rules(seed, split) == []


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_of_the_rank_gives_each_its_own(name: str) -> None:
    seed, split = (each.replace("NUMBER", "7 + rank") for each in DRAWS[name])
    assert rules(seed, split) == ["DW406"]


@pytest.mark.parametrize("name", DRAWS)
def test_no_seed_gives_each_its_own(name: str) -> None:
    _, split = DRAWS[name]
    split = split.replace("default_rng(NUMBER)", "default_rng()").replace(
        ", generator=torch.Generator().manual_seed(NUMBER)", ""
    )
    assert rules("", split) == ["DW406"]


def test_the_seed_of_another_module_does_not_decide() -> None:
    assert rules("torch.manual_seed(7)", SHUFFLED) == ["DW406"]
    assert rules("set_seed(7)", SHUFFLED) == []  # of all modules, as far as is known


def test_a_data_set_of_torchvision_is_the_same_for_all() -> None:
    split = "import torchvision\nheld_out = torchvision.datasets.MNIST('data', train=False)"
    assert rules("", split) == []
