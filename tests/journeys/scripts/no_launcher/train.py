"""Trains a little; expects to be started by torchrun."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def setup():
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("gloo")
    return local_rank


def main():
    local_rank = setup()
    torch.manual_seed(local_rank)
    model = DDP(torch.nn.Linear(4, 1))
    for _ in range(3):
        model(torch.randn(2, 4)).sum().backward()
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
