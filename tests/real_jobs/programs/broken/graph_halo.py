"""Partitioned graph training: each worker owns a slice of a ring-shaped road graph.

Boundary node features are exchanged with the two neighbouring partitions
before every message-passing step.
"""

import torch
import torch.distributed as dist
import torch.nn as nn


class RingConv(nn.Module):
    def __init__(self, din, dout):
        super().__init__()
        self.self_lin = nn.Linear(din, dout)
        self.nbr_lin = nn.Linear(din, dout)

    def forward(self, h, left, right):
        padded = torch.cat([left, h, right])
        nbr = 0.5 * (padded[:-2] + padded[2:])
        return torch.relu(self.self_lin(h) + self.nbr_lin(nbr))


class Partition:
    def __init__(self, rank, world, nodes_per_part=256, dim=32):
        self.rank, self.world = rank, world
        self.prev = (rank - 1) % world
        self.next = (rank + 1) % world
        g = torch.Generator().manual_seed(5)
        feats = torch.randn(nodes_per_part * world, dim, generator=g)
        label = (feats[:, 0] + feats.roll(1, 0)[:, 0] > 0).long()
        lo = rank * nodes_per_part
        self.x = feats[lo : lo + nodes_per_part]
        self.y = label[lo : lo + nodes_per_part]

    def halo(self, h):
        first, last = h[:1].detach().contiguous(), h[-1:].detach().contiguous()
        left, right = torch.empty_like(first), torch.empty_like(last)
        dist.send(last, dst=self.next)
        dist.recv(left, src=self.prev)
        dist.send(first, dst=self.prev)
        dist.recv(right, src=self.next)
        return left, right


def average_gradients(modules):
    world = dist.get_world_size()
    for m in modules:
        for p in m.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    part = Partition(rank, world)
    conv1, conv2 = RingConv(32, 64), RingConv(64, 64)
    head = nn.Linear(64, 2)
    modules = [conv1, conv2, head]
    opt = torch.optim.Adam([p for m in modules for p in m.parameters()], lr=1e-2)

    for it in range(20):
        h = conv1(part.x, *part.halo(part.x))
        h = conv2(h, *part.halo(h))
        loss = nn.functional.cross_entropy(head(h), part.y)
        opt.zero_grad()
        loss.backward()
        average_gradients(modules)
        opt.step()
        if rank == 0 and it % 5 == 0:
            print(f"iter {it} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
