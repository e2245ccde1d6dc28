"""Sums a loss on the way; one rank alone asks for the sum."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loss = torch.ones(1) * rank
    dist.all_reduce(loss)
    if rank == 0:  # BRANCH
        dist.all_reduce(loss)  # HANG
        print("loss", loss.item())
    dist.barrier()  # PEERS
    dist.destroy_process_group()


main()
