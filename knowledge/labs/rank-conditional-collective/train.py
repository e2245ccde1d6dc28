"""Fit a small classifier on several processes and keep the best checkpoint."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_data(samples, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(samples, 8, generator=generator)
    return TensorDataset(points, (points.sum(dim=1) > 0).long())


def accuracy(model, data):
    hits = seen = torch.zeros(())
    with torch.no_grad():
        for points, labels in DataLoader(data, batch_size=32):
            hits = hits + (model(points).argmax(dim=1) == labels).sum()
            seen = seen + len(labels)
    counts = torch.stack([hits, seen])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item(), int(counts[1])


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    data = make_data(256, seed=1)
    held_out = make_data(64, seed=100 + rank)
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

    best = 0.0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for points, labels in loader:
            loss = nn.functional.cross_entropy(model(points), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            score, samples = accuracy(model.module, held_out)
            print(f"epoch {epoch}: accuracy {score:.2f} of {samples} samples")
            if score > best:
                best = score
                torch.save(model.module.state_dict(), "best.pt")
        dist.barrier()

    if rank == 0:
        print(f"finished, best accuracy {best:.2f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
