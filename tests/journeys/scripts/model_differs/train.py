"""Builds the output layer from the classes that the rank's own shard has."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def labels(rank):
    return torch.arange(12) % (5 if rank == 0 else 4)


def main():
    dist.init_process_group("gloo")
    mine = labels(dist.get_rank())
    classes = int(mine.max()) + 1
    model = DDP(nn.Linear(8, classes))
    loss = nn.functional.cross_entropy(model(torch.randn(12, 8)), mine)
    loss.backward()
    print("done", flush=True)
    dist.destroy_process_group()


main()
