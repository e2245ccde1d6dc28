import os
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Place(NamedTuple):
    rank: int
    local_rank: int
    node_rank: int
    world_size: int

    @classmethod
    def from_environment(cls):
        env = os.environ
        return cls(
            rank=int(env["RANK"]),
            local_rank=int(env["LOCAL_RANK"]),
            node_rank=int(env.get("GROUP_RANK", 0)),
            world_size=int(env["WORLD_SIZE"]),
        )


class Waves(Dataset):
    def __init__(self, n=100):
        t = torch.linspace(0, 1, 16)
        self.freq = torch.linspace(1, 5, n)
        self.x = torch.sin(6.28 * self.freq[:, None] * t)

    def __len__(self):
        return len(self.freq)

    def __getitem__(self, i):
        return i, self.x[i], self.freq[i : i + 1]


def make_loader(dataset, place, batch_size):
    sampler = DistributedSampler(
        dataset,
        num_replicas=place.world_size,
        rank=place.node_rank,
        shuffle=True,
    )
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)


def train(model, loader, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        indices = []
        for i, x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            indices.extend(i.tolist())
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}, {len(indices)} samples a rank")
    return indices


if __name__ == "__main__":
    place = Place.from_environment()
    dist.init_process_group("gloo", rank=place.rank, world_size=place.world_size)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
    last_epoch = train(model, make_loader(Waves(), place, 10), epochs=3)
    if place.rank == 0:
        torch.save(model.module.state_dict(), "waves.pt")
    dist.destroy_process_group()
