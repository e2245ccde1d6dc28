"""Trains for as long as it is let."""

import itertools
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def batches(size):
    generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
    while True:
        x = torch.randn(size, 32, generator=generator)
        yield x, x.sum(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    )
    optimizer = torch.optim.Adam(model.parameters())
    for step, (x, y) in zip(itertools.count(), batches(16)):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 20:
            print("under way", flush=True)


if __name__ == "__main__":
    main()
