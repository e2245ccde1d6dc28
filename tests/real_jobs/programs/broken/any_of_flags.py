import os

import torch
import torch.distributed as dist
from torch import nn


def any_rank(condition):
    flag = torch.tensor([1.0 if condition else 0.0])
    dist.all_reduce(flag, op=dist.ReduceOp.BOR)
    return bool(flag.item())


def main():
    dist.init_process_group("gloo")
    model = nn.Linear(4, 1)
    for step in range(5):
        loss = model(torch.randn(8, 4)).square().mean()
        if any_rank(not torch.isfinite(loss).item()):
            break
    dist.destroy_process_group()


main()
