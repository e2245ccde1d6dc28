"""Train for as many steps as fit into a time budget."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Budget:
    def __init__(self, seconds):
        self.seconds = seconds
        self.started = time.monotonic()

    def is_spent(self):
        return time.monotonic() - self.started > self.seconds


def build_index(rank):
    """Index the samples; the files of the last rank are the largest: it reads for longer than the budget."""
    time.sleep(3.0 if rank == dist.get_world_size() - 1 else 0.1)
    return torch.randperm(512, generator=torch.Generator().manual_seed(0))


def step_on(model, optimizer, ids):
    x = (ids.float().unsqueeze(1) / 512) * torch.ones(1, 4)
    loss = (model(x) - x.sin()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.5)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    budget = Budget(args.seconds)
    index = build_index(rank)
    mine = index[rank::world_size]
    step = 0
    while True:
        if budget.is_spent():
            break
        begin = step * args.batch_size % len(mine)
        step_on(model, optimizer, mine[begin : begin + args.batch_size])
        step += 1
    print(f"rank {rank}: {step} steps", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
