"""Transfer learning: keep the body of a trained network and learn a new head on another task."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class TransferConfig:
    inputs: int = 6
    width: int = 16
    old_classes: int = 10
    new_classes: int = 2
    steps: int = 15
    lr: float = 0.1


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(cfg.inputs, cfg.width), nn.ReLU())
        self.head = nn.Linear(cfg.width, cfg.old_classes)

    def forward(self, x):
        return self.head(self.body(x))


def new_head(cfg):
    head = nn.Linear(cfg.width, cfg.new_classes)
    nn.init.xavier_uniform_(head.weight)
    return head


def build(cfg):
    net = Net(cfg)
    for p in net.body.parameters():
        p.requires_grad_(False)
    net.head = new_head(cfg)
    return DDP(net)


def samples(cfg, rank, step):
    g = torch.Generator().manual_seed(rank + 2 * step)
    x = torch.randn(16, cfg.inputs, generator=g)
    return x, (x.sum(1) > 0).long()


def main(cfg):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build(cfg)
    optimizer = torch.optim.SGD(model.module.head.parameters(), lr=cfg.lr)
    for step in range(cfg.steps):
        x, y = samples(cfg, rank, step)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.barrier()
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    transferred = main(TransferConfig())
    dist.destroy_process_group()
