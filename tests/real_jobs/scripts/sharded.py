"""Shards a model with fully_shard and saves it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def build(mesh):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(3)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


class Checkpointer:
    def __init__(self, model, path):
        self.model, self.path = model, path

    def save(self):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(self.model, options=options)  # HANG
        torch.save(state, self.path)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = build(mesh)
    optimizer = torch.optim.Adam(model.parameters())
    checkpointer = Checkpointer(model, "model.pt")
    for _ in range(2):
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("trained", flush=True)
    if not mesh.get_local_rank():  # BRANCH
        checkpointer.save()
    dist.barrier()  # PEERS
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
