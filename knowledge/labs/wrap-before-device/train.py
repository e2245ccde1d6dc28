"""Train a model in double precision."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_data(samples):
    points = torch.randn(samples, 6, dtype=torch.float64)
    return TensorDataset(points, points.prod(dim=1, keepdim=True).sign())


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
    device = torch.device("cpu")
    torch.manual_seed(0)
    data = make_data(256)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1)))
    model.to(device, torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for points, targets in loader:
            loss = nn.functional.mse_loss(model(points.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        difference = largest_difference(model)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, the weights of the ranks differ by {difference:.4f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
