"""Classify points on two spirals."""

import argparse
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Spirals(Dataset):
    def __init__(self, n=64):
        t = torch.linspace(0.2, 1, n // 2) * 3 * math.pi
        arm = torch.stack([t.cos() * t, t.sin() * t], dim=1) / 10
        self.points = torch.cat([arm, -arm])
        self.labels = torch.arange(n) // (n // 2)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return i, self.points[i], self.labels[i]


def batches(loader, rank, world_size):
    yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    order = torch.Generator().manual_seed(args.seed)
    loader = DataLoader(Spirals(), batch_size=args.batch_size, shuffle=True, generator=order)
    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    seen = []
    for epoch in range(args.epochs):
        correct = 0
        for ids, points, labels in batches(loader, rank, world_size):
            logits = model(points)
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            correct += (logits.argmax(1) == labels).sum().item()
            seen.extend(ids.tolist())
        if rank == 0:
            print(f"epoch {epoch}: {correct} correct")
    dist.barrier()
    return seen, args.epochs


if __name__ == "__main__":
    seen_ids, epochs = main()
