"""Accumulate the gradients of several micro-batches before each step."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUMULATE = 4


def largest_difference(model):
    """Return how far the weights of the ranks are apart."""
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    low, high = weights.clone(), weights.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return (high - low).max().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    points = torch.randn(512, 10)
    data = TensorDataset(points, points.sum(dim=1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(5):
        sampler.set_epoch(epoch)
        for i, (inputs, targets) in enumerate(loader):
            with nullcontext() if i % ACCUMULATE == 0 else model.no_sync():
                loss = nn.functional.mse_loss(model(inputs), targets) / ACCUMULATE
                loss.backward()
            if (i + 1) % ACCUMULATE == 0:
                optimizer.step()
                optimizer.zero_grad()
        difference = largest_difference(model)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, the weights of the ranks differ by {difference:.4f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
