"""Shared encoder with one head per task; each step draws one task per worker."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TASKS = {"sentiment": 2, "topic": 6, "language": 4}


class MultiTaskNet(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.heads = nn.ModuleDict({t: nn.Linear(dim, c) for t, c in TASKS.items()})

    def forward(self, x, task):
        return self.heads[task](self.encoder(x))


class TaskStream:
    def __init__(self, seed, batch=32):
        self.rng = random.Random(seed)
        self.gen = torch.Generator().manual_seed(seed)
        self.batch = batch
        proj = torch.Generator().manual_seed(77)
        self.proj = {t: torch.randn(24, c, generator=proj) for t, c in TASKS.items()}

    def __iter__(self):
        while True:
            task = self.rng.choice(list(TASKS))
            x = torch.randn(self.batch, 24, generator=self.gen)
            yield task, x, (x @ self.proj[task]).argmax(1)


def main(steps=60):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    net = DDP(MultiTaskNet())
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    running = dict.fromkeys(TASKS, 0.0)
    for step, (task, x, y) in zip(range(steps), TaskStream(seed=rank)):
        loss = nn.functional.cross_entropy(net(x, task), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running[task] = 0.9 * running[task] + 0.1 * loss.item()
        if rank == 0 and step % 20 == 0:
            print(step, {k: round(v, 3) for k, v in running.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
