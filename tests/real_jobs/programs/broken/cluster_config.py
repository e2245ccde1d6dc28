import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    backend: str = "gloo"
    nodes: int = 1
    procs_per_node: int = 4
    epochs: int = 3
    batch_size: int = 16
    lr: float = 0.02

    @property
    def world_size(self):
        return self.nodes * self.procs_per_node


def init_distributed(cfg):
    rank = int(os.environ["RANK"])
    dist.init_process_group(cfg.backend, rank=rank, world_size=cfg.world_size)
    return rank


def get_loader(cfg):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(160, 4, generator=g)
    data = TensorDataset(x, (x[:, 0] > x[:, 3]).float())
    sampler = DistributedSampler(data, shuffle=True)
    return DataLoader(data, batch_size=cfg.batch_size, sampler=sampler)


def main():
    cfg = Config()
    rank = init_distributed(cfg)
    torch.manual_seed(0)
    loader = get_loader(cfg)
    model = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), "order.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
