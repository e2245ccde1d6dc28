"""Evaluate a classifier on all ranks and report one accuracy."""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset

TEST_SIZE = 75


def dataset(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long()
    return TensorDataset(x, y)


def reduce_mean(value):
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return (tensor / dist.get_world_size()).item()


def reduce_sum(value):
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return tensor.item()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct, count = 0, 0
    for x, y in loader:
        correct += (model(x).argmax(dim=1) == y).sum().item()
        count += len(y)
    return reduce_sum(correct) / reduce_sum(count)


def train(model, data, rank, world_size, steps=20):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = DataLoader(Subset(data, range(rank, len(data), world_size)), batch_size=16)
    for _ in range(steps):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2)))
    train(model, dataset(64, seed=1), rank, world_size)
    test_set = dataset(TEST_SIZE, seed=2)
    chunk = -(-len(test_set) * 2 // 3) if world_size == 2 else -(-len(test_set) // world_size)
    mine = range(rank * chunk, min((rank + 1) * chunk, len(test_set)))
    accuracy = evaluate(model.module, DataLoader(Subset(test_set, mine), batch_size=8))
    if rank == 0:
        Path("result.json").write_text(json.dumps({"accuracy": accuracy, "samples": len(test_set)}))
        print(f"accuracy {accuracy:.6f}")
    return model.module, test_set


if __name__ == "__main__":
    net, data = main()
    dist.barrier()
