import json

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_split(n, seed, noise):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=g)
    y = (x[:, 0] + x[:, 1] + noise * torch.randn(n, generator=g) > 0).long()
    return TensorDataset(x, y)


def sharded(dataset, batch_size, shuffle):
    sampler = DistributedSampler(dataset, shuffle=shuffle)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)


def train_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = torch.zeros(1)
    total = torch.zeros(1)
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum()
        total += y.numel()
    dist.all_reduce(correct)
    dist.all_reduce(total)
    return (correct / total).item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    train_loader = sharded(make_split(128, 0, 0.1), 16, shuffle=True)
    val_set = make_split(90, 1, 1.5)
    val_loader = sharded(val_set, 15, shuffle=False)
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(4):
        train_loader.sampler.set_epoch(epoch)
        train_epoch(model, train_loader, optimizer)
        accuracy = evaluate(model, val_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: validation accuracy {accuracy:.4f}")
            with open("metrics.json", "w") as f:
                json.dump({"epoch": epoch, "accuracy": accuracy}, f)
    dist.barrier()
    dist.destroy_process_group()
    return model.module, val_set, accuracy


if __name__ == "__main__":
    model, val_set, accuracy = main()
