"""Trains a sharded model and exports its weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value  # HANG


class Exporter:
    def __init__(self, rank):
        self.enabled = rank == 0

    def __call__(self, model):
        return {name: whole(p).cpu() for name, p in model.named_parameters()} if self.enabled else {}  # BRANCH


def main():
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("exporting", flush=True)
    weights = Exporter(dist.get_rank())(model)
    dist.barrier()  # PEERS
    print(len(weights))


if __name__ == "__main__":
    main()
