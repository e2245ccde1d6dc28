"""Train a residual network whose blocks are sharded over the processes."""

import gc
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, hidden):
        return hidden + self.inner(hidden)


class Network(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, points):
        hidden = self.embed(points)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    points = torch.randn(256, 8)
    data = TensorDataset(points, points.sum(dim=1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)

    first = None
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = 0.0
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
        first = first or total
        if rank == 0:
            print(f"epoch {epoch}: loss {total:.3f}, {100 * total / first:.0f} % of the first epoch")
    if rank == 0:
        print(f"{sum(isinstance(each, DTensor) for each in model.parameters())} parameters are sharded")


if __name__ == "__main__":
    main()
    gc.collect()  # frees the model, which holds the process group
    dist.destroy_process_group()
