"""Accumulate gradients over two micro-batches."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        last = step % 2 == 1
        context = contextlib.nullcontext() if last else model.no_sync()
        with context:
            model(torch.randn(4, 2)).square().mean().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()
