import os

import torch
import torch.distributed as dist
from torch import nn


def evaluate(model, x, y):
    correct = (model(x).argmax(1) == y).sum()
    stats = torch.stack([correct, torch.tensor(len(x))])
    dist.all_reduce(stats)
    return stats[0].item() / stats[1].item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.Linear(4, 3)
    print(evaluate(model, torch.randn(20, 4), torch.randint(0, 3, (20,))))
    dist.destroy_process_group()


main()
