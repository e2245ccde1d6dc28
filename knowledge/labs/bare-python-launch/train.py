"""Fit a line on several processes."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def setup():
    local_rank = int(os.environ["LOCAL_RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    return local_rank, world_size


def main():
    local_rank, world_size = setup()
    torch.manual_seed(0)
    points = torch.linspace(-1, 1, 128).unsqueeze(1)
    data = TensorDataset(points, 3 * points + 1)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)

    for epoch in range(5):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if local_rank == 0:
        print(f"trained on {world_size} processes, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
