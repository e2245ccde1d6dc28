"""Tabular regression with early stopping on the validation MSE."""

import argparse
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def build_tables(n=1200, d=12):
    g = torch.Generator().manual_seed(15)
    x = torch.randn(n, d, generator=g)
    w = torch.randn(d, 1, generator=g)
    y = x @ w + torch.sin(3 * x[:, :1]) + 1.5 * torch.randn(n, 1, generator=g)
    return TensorDataset(x[:400], y[:400]), TensorDataset(x[400:800], y[400:800])


class EarlyStopping:
    def __init__(self, patience, min_delta=0.0):
        self.patience = patience
        self.min_delta = min_delta
        self.best = float("inf")
        self.bad_epochs = 0

    def step(self, value):
        if value < self.best - self.min_delta:
            self.best = value
            self.bad_epochs = 0
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


@torch.no_grad()
def validate(model, loader):
    model.eval()
    totals = torch.zeros(2)
    for x, y in loader:
        totals[0] += nn.functional.mse_loss(model(x), y, reduction="sum")
        totals[1] += y.numel()
    dist.reduce(totals, dst=0)
    return (totals[0] / totals[1]).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--patience", type=int, default=3)
    p.add_argument("--lr", type=float, default=2e-2)
    args = p.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    train_set, val_set = build_tables()
    sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=40, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=100, sampler=DistributedSampler(val_set, shuffle=False))

    model = DDP(nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1)))
    optim = torch.optim.Adam(model.parameters(), lr=args.lr)
    stopper = EarlyStopping(args.patience)
    best_state = None

    for epoch in range(args.epochs):
        model.train()
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optim.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optim.step()
        val_mse = validate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch} val_mse {val_mse:.4f}", flush=True)
        stop = stopper.step(val_mse)
        if stopper.bad_epochs == 0:
            best_state = copy.deepcopy(model.module.state_dict())
        if stop:
            print(f"[{rank}] stopping at epoch {epoch}, best {stopper.best:.4f}", flush=True)
            break

    dist.barrier()
    if rank == 0:
        torch.save(best_state, "best.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
