import os

import torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import Dataset, DataLoader
from torch.utils.data.distributed import DistributedSampler


class FakeImages(Dataset):
    def __init__(self, n, train=True):
        gen = torch.Generator().manual_seed(0 if train else 1)
        self.images = torch.rand(n, 1, 8, 8, generator=gen)
        self.labels = (self.images.mean((1, 2, 3)) > 0.5).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        return self.images[idx], self.labels[idx]


def build_dataloader(dataset, batch_size, train):
    sampler = DistributedSampler(dataset, shuffle=train)
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        shuffle=train,
        num_workers=0,
        drop_last=train,
    ), sampler


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4 * 6 * 6, 2)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).flatten(1))


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)

    val_loader, _ = build_dataloader(FakeImages(32, train=False), 8, train=False)
    train_loader, train_sampler = build_dataloader(FakeImages(128), 16, train=True)

    model = nn.parallel.DistributedDataParallel(ConvNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        train_sampler.set_epoch(epoch)
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        model.eval()
        counts = torch.zeros(2)
        with torch.no_grad():
            for images, labels in val_loader:
                counts[0] += (model(images).argmax(1) == labels).sum()
                counts[1] += len(labels)
        dist.all_reduce(counts)
        if rank == 0:
            print(f"epoch {epoch} accuracy {(counts[0] / counts[1]).item():.3f}")
    dist.destroy_process_group()
