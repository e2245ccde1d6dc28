"""Data parallel training without a wrapper: gradients are averaged by hand after each backward pass."""

from itertools import pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        layers = []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.net = nn.Sequential(*layers[:-1])

    def forward(self, x):
        return self.net(x)


def average_gradients(model):
    world_size = dist.get_world_size()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world_size
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def global_batch(step, size=32):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(size, 8, generator=g)
    return x, x.sin().sum(1, keepdim=True) * 4


def train_step(model, optimizer, x, y, clip=0.5):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    average_gradients(model)
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item(), grad_norm.item()


def build():
    torch.manual_seed(21)
    model = MLP([8, 16, 1])
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def main(steps=15):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model, optimizer = build()
    for step in range(steps):
        x, y = (t.chunk(world_size)[rank] for t in global_batch(step))
        loss, norm = train_step(model, optimizer, x, y)
        if rank == 0:
            print(f"step {step:3d}  loss {loss:.4f}  grad norm {norm:.3f}")
    dist.barrier()
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    result = main()
