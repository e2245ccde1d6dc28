"""Train a stack of blocks that FSDP2 shards."""

import gc
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden):
        return hidden + self.inner(self.norm(hidden))


class Network(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, points):
        hidden = self.embed(points)
        for block in self.layers:
            hidden = block(hidden)
        return self.head(hidden)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Network()
    fully_shard(model.layers)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    torch.manual_seed(1 + rank)
    for step in range(20):
        points = torch.randn(32, 8)
        loss = nn.functional.mse_loss(model(points), points.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    if rank == 0:
        print(f"{sum(isinstance(each, FSDPModule) for each in model.modules())} units are gathered one at a time")


if __name__ == "__main__":
    main()
    gc.collect()  # frees the model, which holds the process group
    dist.destroy_process_group()
