from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class TrainConfig:
    # lr was tuned for a batch of base_batch samples
    lr: float = 0.08
    base_batch: int = 32
    batch_size: int = 32  # global
    epochs: int = 3
    seed: int = 0


def scaled_lr(cfg: TrainConfig, per_rank: int, world_size: int) -> float:
    """Linear scaling rule: the learning rate grows with the global batch."""
    return cfg.lr * per_rank * world_size / cfg.base_batch


def build(cfg: TrainConfig):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed)
    x = torch.randn(256, 9)
    y = x.cumsum(1)[:, -1:]
    data = TensorDataset(x, y)
    per_rank = cfg.batch_size // world_size
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, seed=cfg.seed)
    loader = DataLoader(data, batch_size=per_rank, sampler=sampler)
    model = DDP(nn.Linear(9, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=scaled_lr(cfg, per_rank, world_size))
    return model, optimizer, loader, sampler


def main(cfg: TrainConfig):
    dist.init_process_group("gloo")
    model, optimizer, loader, sampler = build(cfg)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.5f}")
    dist.destroy_process_group()
    return optimizer.param_groups[0]["lr"], loader.batch_size


if __name__ == "__main__":
    config = TrainConfig()
    lr, per_rank_batch = main(config)
