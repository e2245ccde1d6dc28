import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Rows(Dataset):
    def __init__(self, n=64):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, 5, generator=g)
        self.y = self.x.sum(1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return i, self.x[i], self.y[i]


def train_one_epoch(model, loader, optimizer):
    total, order = 0.0, []
    for idx, x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        order += idx.tolist()
    return total / len(loader), order


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)

    dataset = Rows()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    orders = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss, order = train_one_epoch(model, loader, optimizer)
        orders.append(order)
        if rank == 0:
            print(f"epoch {epoch}: {loss:.4f}")
            torch.save({"epoch": epoch, "model": model.module.state_dict()}, "last.pt")
    dist.barrier()
    dist.destroy_process_group()
    return orders


if __name__ == "__main__":
    orders = main()
