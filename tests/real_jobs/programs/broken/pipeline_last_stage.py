import os

import torch
import torch.distributed as dist
from torch import nn


class Stage(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.rank, self.world = rank, world
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        if self.rank > 0:
            x = torch.empty(4, 8)
            dist.recv(x, src=self.rank - 1)
        y = self.layer(x)
        dist.send(y.detach(), dst=self.rank + 1)
        return y


def main():
    dist.init_process_group("gloo")
    stage = Stage(dist.get_rank(), dist.get_world_size())
    for _ in range(3):
        out = stage(torch.randn(4, 8))
    print(out.mean())
    dist.barrier()
    dist.destroy_process_group()


main()
