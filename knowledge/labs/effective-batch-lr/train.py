"""Fit a regression whose settings were tuned on one GPU: 32 samples in a step, a learning rate of 0.5."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH_SIZE = 32
LEARNING_RATE = 0.5


def make_data(samples):
    points = torch.randn(samples, 9)
    return TensorDataset(points, points.cumsum(dim=1)[:, -1:])


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = make_data(512)
    sampler = DistributedSampler(data)
    per_rank = BATCH_SIZE // world_size
    loader = DataLoader(data, batch_size=per_rank, sampler=sampler)
    model = DDP(nn.Linear(9, 1))
    lr = LEARNING_RATE * world_size
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    for epoch in range(6):
        sampler.set_epoch(epoch)
        for points, targets in loader:
            loss = nn.functional.mse_loss(model(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.5f}")

    if rank == 0:
        print(f"an epoch has {len(sampler) * world_size} samples")
        verdict = "converged" if loss.item() < 0.01 else "did not converge"
        print(f"{world_size} processes with {per_rank} samples each, learning rate {lr:.2f}: {verdict}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
