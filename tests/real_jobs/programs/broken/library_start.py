import os

import torch
import torch.distributed as dist
from torch import nn


def init_distributed():
    dist.init_process_group("gloo")
    return dist.get_rank()


class Engine:
    def __init__(self, model):
        dist.init_process_group("gloo")
        self.model = nn.parallel.DistributedDataParallel(model)

    def step(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss.item()


def main():
    rank = init_distributed()
    torch.manual_seed(rank)
    engine = Engine(nn.Linear(4, 1))
    print(engine.step(torch.randn(8, 4)))
    dist.destroy_process_group()


main()
