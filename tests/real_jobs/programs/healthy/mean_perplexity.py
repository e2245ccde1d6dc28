"""Evaluate the perplexity of a classifier over all ranks."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def evaluate(model, loader):
    total, count = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            total += nn.functional.cross_entropy(model(x), y, reduction="sum").item()
            count += len(y)
    stats = torch.tensor([total, count])
    dist.all_reduce(stats)
    return math.exp(stats[0].item() / stats[1].item())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
    model = nn.Linear(4, 3)
    value = evaluate(model, loader)
    print(value)
    dist.destroy_process_group()
    return model, data, value


if __name__ == "__main__":
    model, data, reported = main()
