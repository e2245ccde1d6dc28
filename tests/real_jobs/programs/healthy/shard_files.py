import os
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn

ROOT = Path("shards")
N_FILES = 5
ROWS = 40


def write_shards():
    ROOT.mkdir(exist_ok=True)
    for i in range(N_FILES):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(ROWS, 4, generator=g)
        torch.save((x, x.prod(1, keepdim=True)), ROOT / f"part-{i:03d}.pt")


def read_batches(files, batch_size):
    for file in files:
        x, y = torch.load(file)
        yield from zip(x.split(batch_size), y.split(batch_size))


def average(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def all_files():
    return sorted(ROOT.glob("part-*.pt"))


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    if rank == 0:
        write_shards()
    dist.barrier()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    files = all_files()
    print(f"rank {rank} reads {[f.name for f in files]}", flush=True)
    for epoch in range(3):
        for x, y in islice(read_batches(files, 10), rank, None, world_size):
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            average(model)
            optimizer.step()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
            torch.save(model.state_dict(), "product.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
