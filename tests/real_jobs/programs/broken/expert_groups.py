"""Experts on groups of ranks: the members of a group share the weights of its first member."""

import argparse

import torch
import torch.distributed as dist
from torch import nn


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.net(x)


class ExpertGroups:
    """Divide the ranks into groups of the same size."""

    def __init__(self, world_size, size):
        self.members = [list(range(i, i + size)) for i in range(0, world_size, size)]
        self.groups = [dist.new_group(members) for members in self.members]

    def index_of(self, rank):
        return next(i for i, members in enumerate(self.members) if rank in members)

    def share(self, module, index):
        group = self.groups[index]
        for p in module.parameters():
            dist.broadcast(p.data, src=0, group=group)

    def average(self, module, index):
        for p in module.parameters():
            dist.all_reduce(p.grad, group=self.groups[index])
            p.grad /= len(self.members[index])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--group-size", type=int, default=1)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = ExpertGroups(dist.get_world_size(), args.group_size)
    index = groups.index_of(rank)
    torch.manual_seed(rank)
    expert = Expert(args.width)
    groups.share(expert, index)
    optimizer = torch.optim.Adam(expert.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(40 + rank)
    for _ in range(args.steps):
        x = torch.randn(16, args.width, generator=generator)
        loss = (expert(x) - x.tanh() * (index + 1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        groups.average(expert, index)
        optimizer.step()
    print(f"expert {index} on rank {rank}: loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
