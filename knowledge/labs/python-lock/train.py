"""Train with a metrics buffer that is written to disk when it is full."""

import json
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Metrics:
    """Collects values; the trainer and its threads may call it."""

    def __init__(self, path, limit=8):
        self.path, self.limit = path, limit
        self.rows, self.writes = [], 0
        self.lock = threading.Lock()

    def add(self, **values):
        with self.lock:
            self.rows.append(values)
            if len(self.rows) >= self.limit:
                self.flush()

    def flush(self):
        with self.lock:
            with open(self.path, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in self.rows)
            self.rows.clear()
            self.writes += 1


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    points = torch.randn(320, 8)
    data = TensorDataset(points, points.sum(dim=1, keepdim=True))
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    metrics = Metrics("metrics.jsonl")

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, (inputs, targets) in enumerate(loader):
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                metrics.add(epoch=epoch, step=step, loss=loss.item())
                print(f"epoch {epoch} step {step}: loss {loss.item():.3f}")

    if rank == 0:
        metrics.flush()
        print(f"trained, metrics written to the disk {metrics.writes} times")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
