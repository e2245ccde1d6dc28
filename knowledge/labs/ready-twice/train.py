"""Train a deep network whose blocks are recomputed in the backward pass to save memory."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, hidden):
        return hidden + self.inner(self.norm(hidden))


class Network(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 2)

    def forward(self, points):
        hidden = self.embed(points)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=True)
        return self.head(hidden)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    points = torch.randn(256, 8)
    data = TensorDataset(points, (points.sum(dim=1) > 0).long())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DDP(Network(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for points, labels in loader:
            loss = nn.functional.cross_entropy(model(points), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
