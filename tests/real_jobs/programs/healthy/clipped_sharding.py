"""Sharded training with gradient clipping; the norm of the last layer is logged."""

import csv
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class NormLog:
    def __init__(self, path):
        self.path = Path(path)
        self.rows = []

    def add(self, step, loss, norm):
        self.rows.append((step, round(loss, 5), round(norm, 5)))

    def write(self):
        with self.path.open("w", newline="") as f:
            csv.writer(f).writerows([("step", "loss", "norm"), *self.rows])


def make_model(mesh):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def weight_norm(layer):
    return layer.weight.full_tensor().norm().item()


def main(steps=6, max_norm=1.0):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = make_model(init_device_mesh("cpu", (world_size,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    log = NormLog("norms.csv")
    for step in range(steps):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step * world_size + rank))
        loss = (model(x) - 3 * x).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        optimizer.zero_grad()
        norm = weight_norm(model[2])
        if rank == 0:
            log.add(step, loss.item(), norm)
    if rank == 0:
        log.write()
        print(f"{len(log.rows)} rows")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
