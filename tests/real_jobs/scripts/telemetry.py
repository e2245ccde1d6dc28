"""Trains while a helper process watches the machine."""

import ctypes
import multiprocessing
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def watch(interval):
    while True:
        os.getloadavg()
        time.sleep(interval)


def start_helper():
    helper = multiprocessing.get_context("fork").Process(target=watch, args=(30.0,), daemon=True)
    helper.start()
    return helper


def decode(rank, step):
    if rank == 1 and step == 6:
        ctypes.string_at(8)
    return torch.randn(4, 8)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    start_helper()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(50):
        loss = model(decode(rank, step)).sum()
        loss.backward()  # PEERS
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
