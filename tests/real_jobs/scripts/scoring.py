"""Scores the shards that there are."""

import sys

import torch
import torch.distributed as dist


def shard_for(rank, files=1):
    return [f"part-{n}.txt" for n in range(files)][rank : rank + 1]


def score(names):
    return torch.tensor([float(sum(map(len, names)))])


def main():
    dist.init_process_group("gloo")
    mine = shard_for(dist.get_rank())
    print("files", len(mine), flush=True)
    if not mine:  # LEFT
        sys.exit(0)
    value = score(mine)
    pairs = dist.new_group(list(range(dist.get_world_size())))  # PEERS
    dist.all_reduce(value, group=pairs)
    print(value)


main()
