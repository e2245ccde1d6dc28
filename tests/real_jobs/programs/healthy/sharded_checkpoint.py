import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh

CHECKPOINTS = Path("checkpoints")


def build(mesh):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 12))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def save(model, optimizer, step):
    model_state, optim_state = get_state_dict(model, optimizer)
    folder = CHECKPOINTS / f"step-{step}"
    if dist.get_rank() == 0:
        CHECKPOINTS.mkdir(exist_ok=True)
        print("saving", folder)
    dist.barrier()
    dcp.save({"model": model_state, "optim": optim_state}, checkpoint_id=folder)
    dist.barrier()


def load(model, optimizer, step):
    model_state, optim_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optim_state}
    dcp.load(state, checkpoint_id=CHECKPOINTS / f"step-{step}")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def train(model, optimizer, steps, g):
    for _ in range(steps):
        x = torch.randn(8, 12, generator=g)
        loss = nn.functional.mse_loss(model(x), x.flip(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    generator = torch.Generator().manual_seed(dist.get_rank())
    model, optimizer = build(mesh)
    train(model, optimizer, 6, generator)
    save(model, optimizer, 6)

    model, optimizer = build(mesh)
    load(model, optimizer, 6)
    loss = train(model, optimizer, 4, generator)
    dist.all_reduce(loss.detach())
    if dist.get_rank() == 0:
        print("resumed and trained to step 10")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
