"""Train on numbered samples and count who has seen what."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Numbered(Dataset):
    def __init__(self, samples):
        self.points = torch.randn(samples, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return index, self.points[index]


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    data = Numbered(96)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    uses, read = torch.zeros(2, len(data)), 0
    for epoch in range(2):
        for numbers, points in loader:
            uses[epoch, numbers] += 1
            read += len(numbers)
            loss = model(points).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {len(loader)} batches on each of {world_size} processes, loss {loss.item():.3f}")

    print(f"rank {rank} has read {read // 2} samples an epoch")
    dist.all_reduce(uses)
    if rank == 0:
        print(f"in an epoch each sample was used {uses.min():.0f} to {uses.max():.0f} times")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
