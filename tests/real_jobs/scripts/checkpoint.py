"""Saves the best model to a fixed place; before that one rank alone asks for the sum of the loss."""

import sys

import torch
import torch.distributed as dist


def main():
    best = sys.argv[1]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loss = torch.ones(1) * rank
    if rank == 0:  # BRANCH
        dist.all_reduce(loss)  # HANG
    dist.barrier()  # PEERS
    if rank == 0:
        torch.save(loss, best)
        print("saved", torch.load(best).item(), flush=True)
    dist.destroy_process_group()


main()
