"""Train on tiles of satellite images; the loader cuts and rotates them."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Tiles(Dataset):
    def __len__(self):
        return 192

    def __getitem__(self, index):
        tile = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(index))
        return torch.rot90(tile, index % 4, (1, 2)), index % 5


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Tiles()
    sampler = DistributedSampler(data, world_size, rank)
    # The recipe of the old cluster: one worker for each CPU, and two more.
    workers = os.cpu_count() + 2
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=workers)
    print(f"rank {rank}: {loader.num_workers} workers, {os.cpu_count()} CPUs for {world_size} ranks")

    model = DDP(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        began = time.perf_counter()
        for tiles, labels in loader:
            loss = nn.functional.cross_entropy(model(tiles), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {time.perf_counter() - began:.2f} s")
    if rank == 0:
        print(f"all epochs done with {loader.num_workers * world_size / os.cpu_count():.1f} workers for each CPU")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
