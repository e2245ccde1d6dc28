"""Autoencoder trained with fully sharded parameters."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class Config:
    inputs: int = 16
    width: int = 32
    bottleneck: int = 8
    lr: float = 1e-2
    steps: int = 30


class AutoEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(cfg.inputs, cfg.width), nn.ReLU(), nn.Linear(cfg.width, cfg.bottleneck))
        self.decoder = nn.Sequential(nn.Linear(cfg.bottleneck, cfg.width), nn.ReLU(), nn.Linear(cfg.width, cfg.inputs))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(0)
        self.model = AutoEncoder(cfg)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.shard(mesh)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.history = []

    def shard(self, mesh):
        for part in (self.model.encoder, self.model.decoder):
            fully_shard(part, mesh=mesh)
        fully_shard(self.model, mesh=mesh)

    def batch(self, step):
        g = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        latent = torch.randn(32, 4, generator=g)
        return latent.repeat(1, self.cfg.inputs // 4)

    def fit(self):
        for step in range(self.cfg.steps):
            x = self.batch(step)
            loss = nn.functional.mse_loss(self.model(x), x)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.history.append(loss.item())
            if dist.get_rank() == 0 and step % 10 == 0:
                print(f"step {step} reconstruction {loss.item():.4f}")
        return self.history


if __name__ == "__main__":
    dist.init_process_group("gloo")
    losses = Trainer(Config()).fit()
    dist.barrier()
    dist.destroy_process_group()
