"""Regression on tabular data; training ends when the validation loss has not improved for a while."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Config:
    epochs: int = 40
    patience: int = 2
    batch_size: int = 32
    lr: float = 0.2
    features: int = 6


class EarlyStopping:
    def __init__(self, patience):
        self.patience = patience
        self.best = float("inf")
        self.bad_epochs = 0

    def update(self, value):
        if value < self.best - 1e-3:
            self.best, self.bad_epochs = value, 0
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


def make_data(n, features, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=g)
    noise = torch.randn(n, 1, generator=g) * torch.linspace(0.1, 2.0, n).unsqueeze(1)
    return TensorDataset(x, x.sum(1, keepdim=True) + noise)


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.mse_loss(model(x), y) for x, y in loader]
    model.train()
    return torch.stack(losses).mean()


def main(cfg):
    dist.init_process_group(backend="gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    train = make_data(256, cfg.features, seed=1)
    held_out = make_data(96, cfg.features, seed=2)
    share = len(held_out) // world_size
    val = torch.utils.data.Subset(held_out, range(rank * share, (rank + 1) * share))
    sampler = DistributedSampler(train, seed=3)
    loader = DataLoader(train, cfg.batch_size, sampler=sampler)
    val_loader = DataLoader(val, cfg.batch_size)
    stopper = EarlyStopping(cfg.patience)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        val_loss = validate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch} val {val_loss.item():.4f}")
        if stopper.update(val_loss.item()):
            print(f"[rank {rank}] stopping after epoch {epoch}")
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
