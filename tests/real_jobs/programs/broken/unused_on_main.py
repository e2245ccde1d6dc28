import os

import torch
import torch.distributed as dist
from torch import nn


def wrap(model, rank):
    debug = rank == 0
    return nn.parallel.DistributedDataParallel(model, find_unused_parameters=debug)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), dist.get_rank())
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
