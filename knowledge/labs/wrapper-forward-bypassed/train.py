"""Train an encoder so that two views of a sample have similar embeddings."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, points):
        return nn.functional.normalize(self.body(points), dim=1)


def contrastive_loss(first, second):
    scores = first @ second.T / 0.1
    return nn.functional.cross_entropy(scores, torch.arange(len(scores)))


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
    data = TensorDataset(torch.randn(256, 16))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (points,) in loader:
            views = points + 0.1 * torch.randn(2, *points.shape)
            first, second = model.module(views.flatten(0, 1)).chunk(2)
            loss = contrastive_loss(first, second)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        difference = largest_difference(model)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, the weights of the ranks differ by {difference:.4f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
