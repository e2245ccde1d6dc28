"""Rank 0 draws the order of the samples and broadcasts it."""

import torch
import torch.distributed as dist


def shared_order(count):
    order = torch.randperm(count) if dist.get_rank() == 0 else torch.empty(count)
    dist.broadcast(order, src=0)
    return order


def main():
    dist.init_process_group("gloo")
    order = shared_order(32)
    data = torch.randn(32, 4)
    mine = data[order[dist.get_rank() :: dist.get_world_size()].long()]
    print(mine.sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
