"""Train in two sessions; the second one goes on where the first one ended."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINT = "last.pt"


def make_data():
    points = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
    return TensorDataset(points, points.sum(dim=1, keepdim=True))


def train_until(last_epoch):
    """Train to the end of an epoch, from the checkpoint if there is one."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    start = 0
    if os.path.exists(CHECKPOINT):
        state = torch.load(CHECKPOINT, map_location="cpu")
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1

    model = DDP(net)
    data = make_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    for epoch in range(start, last_epoch + 1):
        sampler.set_epoch(epoch)
        for points, targets in loader:
            loss = nn.functional.mse_loss(model(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        torch.save({"model": net.state_dict(), "epoch": last_epoch}, CHECKPOINT)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train_until(last_epoch=1)
    train_until(last_epoch=3)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
