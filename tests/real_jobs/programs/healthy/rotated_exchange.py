"""Every rank sends its part of the table to all others, beginning with its own."""

import torch
import torch.distributed as dist


def exchange(parts, rank, world_size):
    for step in range(world_size):
        owner = step
        dist.broadcast(parts[owner], src=owner)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    parts = [torch.zeros(4) for _ in range(world_size)]
    parts[rank] += rank + 1
    exchange(parts, rank, world_size)
    print(torch.stack(parts).sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
