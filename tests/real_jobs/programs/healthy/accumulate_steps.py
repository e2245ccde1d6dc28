"""Train with gradient accumulation; gradients are exchanged at the end of each window only."""

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def get_loader(batch_size):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(112, 6, generator=g)
    data = TensorDataset(x, x.cumsum(1))
    sampler = DistributedSampler(data, shuffle=True, seed=9)
    return DataLoader(data, batch_size=batch_size, sampler=sampler), sampler


def train_one_epoch(model, loader, optimizer, accumulation, max_norm):
    model.train()
    n_batches = len(loader)
    for i, (x, y) in enumerate(loader):
        is_last = i + 1 == n_batches
        window_ends = (i + 1) % accumulation == 0
        context = contextlib.nullcontext() if window_ends or is_last else model.no_sync()
        with context:
            loss = nn.functional.mse_loss(model(x), y) / accumulation
            loss.backward()
        if window_ends or is_last:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            optimizer.zero_grad()
    return loss.item() * accumulation


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--max-norm", type=float, default=1.0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(17)
    model = DDP(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 6)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader, sampler = get_loader(args.batch_size)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_one_epoch(model, loader, optimizer, args.accumulation, args.max_norm)
        print(f"[{dist.get_rank()}] epoch {epoch} last loss {loss:.4f}")
    return model


if __name__ == "__main__":
    final = main()
    dist.barrier()
