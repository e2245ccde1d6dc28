"""Rounds of data that rank 0 prepares; the ranks wait for it by a counter in the store, not by a collective."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def name_of(number):
    return f"round-{number}.pt"


def prepare(number):
    """Write the samples of a round, which takes a while."""
    time.sleep(0.4)
    samples = torch.randn(32, 4, generator=torch.Generator().manual_seed(number))
    torch.save(samples, name_of(number))


def meet(store, number, count):
    """Wait until all ranks have come here."""
    store.add("arrived", 1)
    while int(store.add("arrived", 0)) < count:
        time.sleep(0.01)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(3):
        if rank == 0:
            prepare(number)
        meet(store, number, world_size)
        samples = torch.load(name_of(number))[rank::world_size]
        loss = (model(samples) - samples.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank}: loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
