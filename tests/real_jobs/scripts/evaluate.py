"""The condition is in main, the collective two calls further in."""

import os

import torch
import torch.distributed as dist


def average(value):
    dist.all_reduce(value)  # HANG
    return value / dist.get_world_size()


def report(model):
    score = average(model(torch.ones(1, 2)).detach())
    print("score", score.item())


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 1)
    for step in range(3):
        model(torch.ones(1, 2)).sum().backward()
        if step == 2 and rank == 1:  # BRANCH
            report(model)
        dist.barrier()  # PEERS
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
