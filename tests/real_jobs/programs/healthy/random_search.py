"""Random search: a few trials with random hyperparameters, each trained on all ranks."""

import random
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Trial:
    lr: float
    momentum: float


def draw(rng):
    return Trial(lr=10 ** rng.uniform(-3, -1), momentum=rng.choice([0.0, 0.5, 0.9]))


def next_trial(rng):
    chosen = [draw(rng)]
    dist.broadcast_object_list(chosen, src=0)
    return chosen[0]


def data(rank, step):
    g = torch.Generator().manual_seed(1000 + 2 * step + rank)
    x = torch.randn(16, 5, generator=g)
    return x, x.clamp_min(0).sum(1, keepdim=True)


def train(trial, rank, steps=15):
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.lr, momentum=trial.momentum)
    for step in range(steps):
        x, y = data(rank, step)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.all_reduce(mean := loss.detach().clone())
    return mean.item() / dist.get_world_size(), model.module


def main(trials=3):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rng = random.Random(2024 + rank)
    results = []
    for number in range(trials):
        trial = next_trial(rng)
        loss, model = train(trial, rank)
        results.append((loss, number, model))
        if rank == 0:
            print(f"trial {number} {asdict(trial)} loss {loss:.4f}")
    dist.barrier()
    return min(results)[2]


if __name__ == "__main__":
    winner = main()
