"""Share the values of rank 0."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    group = dist.new_group([0])
    values = torch.full((2,), float(rank))
    dist.broadcast(values, src=0)
    print(values.tolist())
    dist.destroy_process_group()
    return values


if __name__ == "__main__":
    values = main()
