"""A training script with five findings of four rules."""

BUGGY_SCRIPT = '''\
"""Bugs that many people made."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)


def validate(model, data, rank):
    with torch.no_grad():
        if rank == 0:
            loss = model(data).sum()
            dist.all_reduce(loss)
            print(f"loss {loss.item()}")


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    model = DDP(Net())
    model.cuda()
    data = torch.randn(64, 8)
    loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for batch in loader:
            model(batch.cuda()).mean().backward()
            optimizer.step()
        validate(model, data, rank)
    if rank == 0:
        print("done")
        dist.barrier()
'''
