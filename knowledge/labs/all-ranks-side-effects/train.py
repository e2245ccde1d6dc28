"""Train a model and write its losses to a table, from which a curve is drawn."""

import csv

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TABLE = "losses.csv"


def train(model, data, epochs):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for points, targets in loader:
            loss = nn.functional.mse_loss(model(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield epoch, loss.item()


def read_table():
    with open(TABLE, newline="") as file:
        return [(int(epoch), float(loss)) for epoch, loss in csv.reader(file)]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    points = torch.randn(128, 4)
    data = TensorDataset(points, points.sum(dim=1, keepdim=True))
    model = DDP(nn.Linear(4, 1))

    epochs = 4
    for epoch, loss in train(model, data, epochs):
        with open(TABLE, "a", newline="") as file:
            csv.writer(file).writerow([epoch, f"{loss:.5f}"])
    dist.barrier()
    if rank == 0:
        rows = read_table()
        print(f"the table has {len(rows)} rows for {epochs} epochs: {rows}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
