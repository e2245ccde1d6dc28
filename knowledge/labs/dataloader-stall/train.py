"""Train on samples of a local copy; what is not in the copy comes from the object store."""

import storage
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

NOT_COPIED = {131}


class Samples(Dataset):
    def __init__(self, url):
        self.url = url
        self.copy = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.copy)

    def __getitem__(self, index):
        points = storage.read_sample(self.url, index) if index in NOT_COPIED else self.copy[index]
        return points, points.sum().reshape(1)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Samples(storage.connect())
    sampler = DistributedSampler(data, world_size, rank, shuffle=False)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=1)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    read = torch.zeros(2)
    for step, (points, targets) in enumerate(loader):
        read += torch.stack([torch.tensor(float(len(points))), targets.sum()])
        loss = nn.functional.mse_loss(model(points), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    dist.all_reduce(read)
    if rank == 0:
        print(f"read {read[0]:.0f} samples, the sum of their points is {read[1]:.1f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
