"""Train a model and keep the newest checkpoint; it is replaced as a whole, so that a crash never leaves half a file."""

import os

import disk
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINT = "last.pt"


def save(model, optimizer, epoch):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    with open(CHECKPOINT + ".tmp", "wb") as file:
        torch.save(state, file)
    dist.barrier()
    os.replace(CHECKPOINT + ".tmp", CHECKPOINT)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    disk.record_writes(".tmp")
    points = torch.randn(256, 16)
    data = TensorDataset(points, points[:, :8].sum(dim=1, keepdim=True).tanh())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        save(model, optimizer, epoch)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, checkpoint of {os.path.getsize(CHECKPOINT)} bytes")
    dist.barrier()
    if rank == 0:
        print(f"checkpoints written: {disk.count_writes()}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
