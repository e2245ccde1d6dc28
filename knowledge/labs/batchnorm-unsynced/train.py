"""Train a classifier with a global batch that is divided among the processes."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 2


def make_model():
    return nn.Sequential(
        nn.Linear(12, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 3),
    )


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    points = torch.randn(48, 12)
    data = TensorDataset(points, points[:, :3].argmax(dim=1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=GLOBAL_BATCH // world_size, sampler=sampler)
    model = DDP(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {len(loader)} steps of {world_size} ranks, loss {loss.item():.3f}")
    if rank == 0:
        with torch.no_grad():
            features = model.module[:2](points)
        print(f"the features before the activation have the mean {features.mean():.2f} and the spread {features.std():.2f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
