"""Train without DDP: one set of first weights for all ranks, and gradients that are averaged by hand."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_data():
    points = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
    return TensorDataset(points, points.sum(dim=1, keepdim=True))


def share_weights(model, rank):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=rank)


def average_gradients(model, world_size):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    data = make_data()
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    share_weights(model, rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        for points, targets in loader:
            loss = nn.functional.mse_loss(model(points), targets)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model, world_size)
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")

    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    of_ranks = [torch.empty_like(weights) for _ in range(world_size)]
    dist.all_gather(of_ranks, weights)
    if rank == 0:
        difference = max((each - weights).abs().max().item() for each in of_ranks)
        torch.save(model.state_dict(), "model.pt")
        print(f"trained on {world_size} ranks and saved; their weights differ by {difference:.4f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
