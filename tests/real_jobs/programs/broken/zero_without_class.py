import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer


class Task:
    def __init__(self):
        self.model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), lr=1e-3)

    def step(self):
        self.model(torch.randn(4, 4)).square().mean().backward()
        self.optimizer.step()


dist.init_process_group("gloo")
Task().step()
dist.barrier()
dist.destroy_process_group()
