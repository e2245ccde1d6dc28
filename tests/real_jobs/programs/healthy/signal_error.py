"""Mean absolute error on a test set, computed by all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler

TEST_SIZE = 33


class Signals(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 6, generator=g)
        self.y = self.x.amax(1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class StrideSampler(Sampler):
    """Every index once: rank, rank + world size and so on."""

    def __init__(self, dataset, rank, world_size):
        self.indices = range(rank, len(dataset), world_size)

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


def train(model, dataset, epochs=2):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(wrapped(x).squeeze(1), y).backward()
            optimizer.step()


@torch.no_grad()
def mean_absolute_error(model, loader):
    stats = torch.zeros(2, dtype=torch.float64)
    for x, y in loader:
        stats += torch.tensor([(model(x).squeeze(1) - y).abs().sum().item(), len(y)])
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    train(model, Signals(64, seed=1))
    test_set = Signals(TEST_SIZE, seed=2)
    sampler = StrideSampler(test_set, dist.get_rank(), dist.get_world_size())
    error = mean_absolute_error(model, DataLoader(test_set, batch_size=8, sampler=sampler))
    if dist.get_rank() == 0:
        print(f"mean absolute error {error:.8f}")
    dist.barrier()
    return model, test_set, error


if __name__ == "__main__":
    network, signals, reported = main()
