"""Count how the samples are ordered while a small model is trained."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Numbered(Dataset):
    """Points with their number, so that the order of an epoch can be seen."""

    def __init__(self, samples):
        self.points = torch.randn(samples, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return index, self.points[index]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    data = Numbered(64)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    orders, seen, uses = set(), set(), torch.zeros(4, len(data))
    for epoch in range(4):
        order = []
        for numbers, points in loader:
            order += numbers.tolist()
            uses[epoch, numbers] += 1
            loss = model(points).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        orders.add(tuple(order))
        seen.update(order)
        if rank == 0:
            print(f"epoch {epoch}: begins with {order[:4]}, rank 0 has now seen {len(seen)} of {len(data)} samples")

    dist.all_reduce(uses)
    if rank == 0:
        print(f"{len(orders)} different orders in 4 epochs, each sample used {uses.min():.0f} to {uses.max():.0f} times")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
