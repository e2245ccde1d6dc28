"""Hyper-parameters are drawn on rank 0 and shared with the other workers."""

import dataclasses
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass
class RunConfig:
    lr: float
    width: int
    depth: int
    dropout: float
    run_name: str = ""


def sample_config():
    rng = random.Random(time.time_ns())
    return RunConfig(
        lr=10 ** rng.uniform(-3.5, -2.0),
        width=rng.choice([32, 64, 96]),
        depth=rng.choice([1, 2, 3]),
        dropout=rng.choice([0.0, 0.1]),
        run_name=f"trial-{rng.randrange(10_000):04d}",
    )


def share_config(rank):
    if rank == 0:
        payload = [sample_config()]
        dist.broadcast_object_list(payload, src=0)
        print("sampled", payload[0], flush=True)
    else:
        payload = [None]
        dist.broadcast_object_list(payload, src=0)
    return payload[0]


def build(cfg):
    layers, d = [], 10
    for _ in range(cfg.depth):
        layers += [nn.Linear(d, cfg.width), nn.ReLU(), nn.Dropout(cfg.dropout)]
        d = cfg.width
    return nn.Sequential(*layers, nn.Linear(d, 1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cfg = share_config(rank)
    torch.manual_seed(0)
    model = DDP(build(cfg))
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    gen = torch.Generator().manual_seed(rank)
    for step in range(30):
        x = torch.randn(64, 10, generator=gen)
        y = x.prod(1, keepdim=True).tanh() + x[:, :1]
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"[{rank}] {cfg.run_name} width={cfg.width} loss={loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
