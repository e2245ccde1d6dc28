#!/usr/bin/env python
"""Mean and deviation of each feature over all shards."""

import os
import sys

import torch
import torch.distributed as dist

RANK = int(os.getenv("RANK", "0"))
LOCAL = int(os.getenv("LOCAL_RANK", "0"))


def moments(shard):
    return torch.stack([shard.sum(0), shard.square().sum(0), torch.full((shard.shape[1],), float(len(shard)))])


def write(table, stream=sys.stdout):
    mean = table[0] / table[2]
    print("mean", *[f"{value:.3f}" for value in mean], file=stream)


def main(argv):
    dist.init_process_group("gloo")
    torch.manual_seed(RANK)
    shard = torch.randn(100 + RANK, int(argv[0]) if argv else 4)
    total = moments(shard)
    dist.all_reduce(total)
    print("summed", len(shard), flush=True)
    per_rank = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
    _ = LOCAL == 0 and dist.all_gather(per_rank, moments(shard))  # BRANCH HANG
    if RANK == 0:
        write(total)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
