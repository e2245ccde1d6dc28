"""Goes on from a checkpoint that was saved from a model under DDP."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


def save_first(path):
    if dist.get_rank() == 0:
        torch.save(DDP(build(), process_group=dist.new_group([0], use_local_synchronization=True)).state_dict(), path)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    path = Path("last.pt")
    save_first(path)
    model = build()
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state)
    model = DDP(model)
    model(torch.randn(4, 8)).sum().backward()
    print("done", flush=True)
    dist.destroy_process_group()


main()
