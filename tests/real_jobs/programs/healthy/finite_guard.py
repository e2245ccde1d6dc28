import math
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Sensor(Dataset):
    """Readings, some of which are broken (inf)."""

    def __init__(self, n=120):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, 5, generator=g)
        self.y = self.x.mean(1, keepdim=True)
        self.x[37, 2] = float("inf")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def train_epoch(epoch, model, loader, optimizer, loss_fn):
    skipped = 0
    total = 0.0
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        bad = torch.tensor([0.0 if math.isfinite(loss.item()) else 1.0])
        dist.all_reduce(bad)
        if bad.item() > 0:
            print(f"epoch {epoch} batch {i}: loss is {loss.item()}, skipping", flush=True)
            skipped += 1
            continue
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total, skipped


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    data = Sensor()
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=10, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss_fn = nn.MSELoss()

    for epoch in range(3):
        sampler.set_epoch(epoch)
        total, skipped = train_epoch(epoch, model, loader, optimizer, loss_fn)
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {total:.4f} ({skipped} skipped)", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), "sensor.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
