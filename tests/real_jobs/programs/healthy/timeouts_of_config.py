import os

import torch
import torch.distributed as dist
from torch import nn
from dataclasses import dataclass
from datetime import timedelta


@dataclass
class Config:
    backend: str = "gloo"
    timeout_minutes: int = 30
    lr: float = 0.05
    steps: int = 4


def setup(cfg: Config):
    dist.init_process_group(cfg.backend, timeout=timedelta(minutes=cfg.timeout_minutes))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = nn.parallel.DistributedDataParallel(nn.Linear(8, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)

    def fit(self):
        for _ in range(self.cfg.steps):
            self.optimizer.zero_grad()
            self.model(torch.randn(4, 8)).square().mean().backward()
            self.optimizer.step()


if __name__ == "__main__":
    cfg = Config()
    setup(cfg)
    Trainer(cfg).fit()
    dist.destroy_process_group()
