"""Starts its ranks itself; they meet at a port that never changes."""

import sys
import time

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel as DDP

PORT = 12355


def read():
    time.sleep(0.1)
    return torch.randn(4, 8)


def worker(rank, world, steps):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=rank, world_size=world)
    model = DDP(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        loss = model(read()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 2:
            print("trains", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    spawn(worker, args=(2, int(sys.argv[1]) if len(sys.argv) > 1 else 10), nprocs=2)
