import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def export(model, path, rank):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    largest = max(w.abs().max().item() for w in weights.values())
    if rank == 0:
        torch.save(weights, path)
        print("largest", largest)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    model(torch.randn(4, 8)).sum().backward()
    export(model, "w.pt", dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()


main()
