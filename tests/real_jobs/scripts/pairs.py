"""Half of the ranks do one thing, half another."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    value = torch.ones(1)
    if rank % 2 == 0:  # BRANCH
        dist.all_reduce(value)  # EVEN
    else:
        dist.barrier()  # ODD
    dist.destroy_process_group()


main()
