"""Fit a linear probe on cached features."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class ProbeConfig:
    features: int = 12
    classes: int = 3
    global_batch: int = 16
    lr: float = 0.3
    epochs: int = 4


def cached_features(cfg):
    g = torch.Generator().manual_seed(11)
    x = torch.randn(96, cfg.features, generator=g)
    return TensorDataset(x, x[:, : cfg.classes].argmax(dim=1))


def build_probe(cfg):
    torch.manual_seed(3)
    return nn.Linear(cfg.features, cfg.classes)


def run(cfg):
    world_size = dist.get_world_size()
    probe = DDP(build_probe(cfg))
    dataset = cached_features(cfg)
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=cfg.global_batch // world_size, sampler=sampler)
    optimizer = torch.optim.SGD(probe.parameters(), lr=cfg.lr)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(cfg.epochs):
        running = torch.zeros(1)
        for x, y in loader:
            loss = criterion(probe(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach() / world_size
        dist.all_reduce(running)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {running.item() / len(loader):.4f}")
    return probe.module


if __name__ == "__main__":
    dist.init_process_group("gloo")
    config = ProbeConfig()
    probe = run(config)
    dist.barrier()
    dist.destroy_process_group()
