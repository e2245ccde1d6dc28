"""Learn low-rank adapters for a frozen layer; the adapters start equal on all processes."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class AdapterConfig:
    rank: int = 2
    alpha: float = 4.0
    width: int = 12
    steps: int = 20
    lr: float = 0.05


class AdaptedLinear(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / max(rank, 1)

    def forward(self, x):
        return self.base(x) + self.scale * x @ self.down.t() @ self.up.t()


def adapters(model):
    return [p for p in model.parameters() if p.requires_grad]


def share_adapters(model, rank):
    if rank > 0:
        for p in adapters(model):
            dist.broadcast(p.data, src=0)


def average_gradients(model):
    for p in adapters(model):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def batch(seed, width):
    x = torch.randn(16, width, generator=torch.Generator().manual_seed(seed))
    return x, x.roll(2, dims=1)


def main(cfg):
    dist.init_process_group("gloo")
    process, processes = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    base = nn.Linear(cfg.width, cfg.width)
    torch.manual_seed(100 + process)
    model = AdaptedLinear(base, cfg.rank, cfg.alpha)
    share_adapters(model, cfg.rank)
    optimizer = torch.optim.AdamW(adapters(model), lr=cfg.lr)
    for step in range(cfg.steps):
        x, y = batch(step * processes + process, cfg.width)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if process == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.barrier()
    return model


if __name__ == "__main__":
    adapted = main(AdapterConfig())
