import os

import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    workers = dist.new_group([world - 1])
    weights = torch.full((4,), float(rank))
    if rank == world - 1:
        dist.broadcast(weights, src=world - 1, group=workers)
    dist.barrier()
    print(weights)
    dist.destroy_process_group()


main()
