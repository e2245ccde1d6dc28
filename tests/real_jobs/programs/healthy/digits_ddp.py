import os
import torch
import torch.nn as nn
import torch.optim as optim
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup():
    dist.init_process_group("gloo")
    torch.manual_seed(2024)
    return dist.get_rank(), dist.get_world_size()


def cleanup():
    dist.destroy_process_group()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )

    def forward(self, x):
        return self.layers(x)


rank, world_size = setup()

images = torch.randn(200, 8, 8)
labels = images.flatten(1)[:, :10].argmax(dim=1)
indices = torch.arange(200)
train_data = TensorDataset(images, labels, indices)
train_sampler = DistributedSampler(train_data, num_replicas=world_size, rank=rank)
train_loader = DataLoader(train_data, batch_size=10, sampler=train_sampler)

model = DDP(Classifier())
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(2):
    train_sampler.set_epoch(epoch)
    seen = []
    running_loss = torch.zeros(())
    for x, y, i in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        running_loss += loss.detach()
        seen.extend(i.tolist())
    dist.all_reduce(running_loss)
    if rank == 0:
        print(f"epoch {epoch + 1} loss {running_loss.item() / len(train_loader) / world_size:.4f}")

if rank == 0:
    torch.save(model.module.state_dict(), "digits.pt")
cleanup()
