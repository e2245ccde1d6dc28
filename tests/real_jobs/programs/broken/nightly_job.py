"""Nightly training: train on all ranks, then evaluate and write the report."""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

N_FEATURES = 5


def batch(seed, n=32):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, N_FEATURES, generator=g)
    return x, (x[:, 0] - x[:, 1] > 0).float()


def setup():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    return dist.get_rank(), dist.get_world_size()


def cleanup():
    dist.destroy_process_group()


def train(model, rank, world_size, steps=20):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(steps):
        x, y = batch(seed=step * world_size + rank)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate(model, rank):
    model.eval()
    x, y = batch(seed=9_000 + rank, n=64)
    with torch.no_grad():
        hits = ((model(x).squeeze(1) > 0).float() == y).sum()
    total = torch.tensor(len(y))
    dist.all_reduce(hits)
    dist.all_reduce(total)
    return hits.item() / total.item()


def main():
    rank, world_size = setup()
    model = DDP(nn.Linear(N_FEATURES, 1))
    train(model, rank, world_size)
    dist.barrier()
    if rank != 0:
        cleanup()
        return
    report = {"accuracy": evaluate(model.module, rank), "world_size": world_size}
    Path("report.json").write_text(json.dumps(report))
    print(f"accuracy {report['accuracy']:.4f}")
    cleanup()


if __name__ == "__main__":
    main()
