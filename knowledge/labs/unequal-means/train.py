"""Train on two ranks and report the loss of the validation set, which the ranks share."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

EASY = 32  # samples at the front of the validation set


def make_data(samples):
    points = torch.randn(samples, 8)
    return TensorDataset(points, points.sum(dim=1, keepdim=True))


def validate(model, loader, world_size):
    """Return the mean loss of the validation set."""
    total, count = 0.0, 0
    with torch.no_grad():
        for points, targets in loader:
            total += nn.functional.mse_loss(model(points), targets, reduction="sum").item()
            count += len(points)
    mean = torch.tensor(total / count)
    dist.all_reduce(mean)
    return (mean / world_size).item()


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data, whole = make_data(256), make_data(160)
    whole.tensors[1][EASY:] += 1.5 * torch.randn(160 - EASY, 1)
    own = Subset(whole, range(EASY) if rank == 0 else range(EASY, 160))
    sampler = DistributedSampler(data)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    for epoch in range(6):
        sampler.set_epoch(epoch)
        for points, targets in DataLoader(data, batch_size=16, sampler=sampler):
            loss = nn.functional.mse_loss(model(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        reported = validate(model.module, DataLoader(own, batch_size=16), world_size)
        if rank == 0:
            print(f"epoch {epoch}: validation loss {reported:.3f}")

    if rank == 0:
        points, targets = whole.tensors
        alone = nn.functional.mse_loss(model.module(points), targets).item()
        print(f"evaluated again in one process: {alone:.3f}, {abs(alone - reported) / alone:.0%} off")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
