import math

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

cfg = {"epochs": 4, "batch_size": 8, "lr": 0.1, "warmup": 3, "samples": 128}


def warmup_cosine(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, total - warmup))
        return 0.5 * (1 + math.cos(math.pi * progress))

    return optim.lr_scheduler.LambdaLR(optimizer, factor)


def build_data():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(cfg["samples"], 3, generator=g)
    data = TensorDataset(x, x.sin().sum(1, keepdim=True))
    sampler = DistributedSampler(data, shuffle=True)
    return data, sampler, DataLoader(data, batch_size=cfg["batch_size"], sampler=sampler)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data, sampler, loader = build_data()
    if rank == 0:
        print("global batch", cfg["batch_size"] * world_size)

    model = DDP(nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 1)))
    optimizer = optim.SGD(model.parameters(), lr=cfg["lr"])
    steps_per_epoch = len(data) // cfg["batch_size"]
    scheduler = warmup_cosine(optimizer, cfg["warmup"], cfg["epochs"] * steps_per_epoch)

    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.5f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "decayed.pt")
    dist.barrier()
    dist.destroy_process_group()
    return scheduler.get_last_lr()[0]


if __name__ == "__main__":
    final_lr = main()
