"""Trains on and on; one rank alone asks for the sum in each round."""

import torch
import torch.distributed as dist


def total(value, rank):
    if rank == 0:  # BRANCH
        dist.all_reduce(value)  # HANG


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    while True:
        total(torch.ones(1), rank)
        for _ in range(200):
            torch.tanh(torch.ones(256, 256) @ torch.ones(256, 256))
        dist.barrier()  # PEERS


main()
