"""Gossip training: each rank averages its weights with its neighbours instead of with all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def average_with_neighbours(model, groups):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    own = [pair for pair in groups if rank in pair]
    for pair in sorted(own, key=lambda pair: (sum(pair) - 2 * rank) % world_size):
        for parameter in model.parameters():
            dist.all_reduce(parameter.data, group=groups[pair])
            parameter.data /= 2


def make_data(rank):
    points = torch.randn(96, 8, generator=torch.Generator().manual_seed(rank))
    return TensorDataset(points, points.sum(dim=1, keepdim=True))


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    pairs = [(first, second) for first in range(world_size) for second in range(first + 1, world_size)]
    groups = {pair: dist.new_group(list(pair)) for pair in pairs}

    loader = DataLoader(make_data(rank), batch_size=16, shuffle=True)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        for points, targets in loader:
            loss = nn.functional.mse_loss(model(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        average_with_neighbours(model, groups)
        print(f"rank {rank}: epoch {epoch}, loss {loss.item():.3f}")

    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    of_ranks = [torch.empty_like(weights) for _ in range(world_size)]
    dist.all_gather(of_ranks, weights)
    if rank == 0:
        spread = torch.stack(of_ranks).std(dim=0).max().item()
        print(f"gossip with {world_size} ranks ended well, the weights of the ranks are {spread:.4f} apart")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
