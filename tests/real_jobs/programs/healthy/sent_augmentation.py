"""The first rank picks the augmentations of a run and sends them with the rest of its settings."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def augmentation(strength):
    def add_noise(x):
        return x + strength * torch.randn_like(x)

    return add_noise


def settings():
    draw = random.Random(5)
    return {"rate": draw.choice([0.1, 0.05]), "strength": draw.choice([0.1, 0.2])}


def agreed(chosen):
    held = [chosen]
    dist.broadcast_object_list(held, src=0)
    return held[0]


dist.init_process_group("gloo")
rank = dist.get_rank()
config = agreed(settings() if rank == 0 else None)
torch.manual_seed(0)
model = DDP(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=config["rate"])
for step in range(3):
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(augmentation(config["strength"])(rows)).pow(2).mean().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
