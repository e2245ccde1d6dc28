"""One encoder, two heads: the tasks take turns, one batch each."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Settings:
    tasks: dict = field(default_factory=lambda: {"depth": 1, "normals": 3})
    width: int = 16
    steps: int = 8
    batch_size: int = 8


class MultiTask(nn.Module):
    def __init__(self, width, tasks):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, width), nn.ReLU())
        self.heads = nn.ModuleDict({name: nn.Linear(width, size) for name, size in tasks.items()})

    def forward(self, x, task):
        return self.heads[task](self.encoder(x))


class TaskBatches:
    def __init__(self, settings, rank):
        self.settings = settings
        self.generator = torch.Generator().manual_seed(rank)

    def __iter__(self):
        names = list(self.settings.tasks)
        for step in range(self.settings.steps):
            task = names[step % len(names)]
            x = torch.randn(self.settings.batch_size, 6, generator=self.generator)
            yield task, x, x[:, : self.settings.tasks[task]] * 2


def wrap(model):
    return DDP(model, find_unused_parameters=True)


def fit(settings):
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = wrap(MultiTask(settings.width, settings.tasks))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, (task, x, target) in enumerate(TaskBatches(settings, rank)):
        loss = nn.functional.smooth_l1_loss(model(x, task), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} {task:>8} {loss.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    fit(Settings())
    dist.barrier()
    dist.destroy_process_group()
