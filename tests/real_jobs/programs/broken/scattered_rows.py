"""Scatter a series of measurements to the ranks."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = torch.arange(21.0)
    size = -(-len(data) // world)
    mine = torch.empty(size)
    parts = None
    if rank == 0:
        parts = list(data.chunk(world))
    dist.scatter(mine, parts, src=0)
    print(mine.sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
