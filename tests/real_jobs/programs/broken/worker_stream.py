"""Train on a stream that several workers read."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Numbers(IterableDataset):
    def __init__(self, count, rank, world_size):
        self.count, self.rank, self.world_size = count, rank, world_size

    def __iter__(self):
        return itertools.islice(range(self.count), self.rank, None, self.world_size)


def main():
    dist.init_process_group("gloo")
    numbers = Numbers(32, dist.get_rank(), dist.get_world_size())
    loader = DataLoader(numbers, batch_size=4, num_workers=2)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)
    seen = []
    for batch in loader:
        seen += batch.tolist()
        optimizer.zero_grad()
        model(batch.float().unsqueeze(1)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()
    return seen


if __name__ == "__main__":
    seen = main()
