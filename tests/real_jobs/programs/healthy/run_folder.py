"""Save and restore a model in a folder of the run."""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    time.sleep(0.05 * rank)
    name = [f"run-{time.time()}"]
    dist.broadcast_object_list(name, src=0)
    folder = Path(name[0])
    model = nn.Linear(2, 2)
    if rank == 0:
        folder.mkdir()
        torch.save(model.state_dict(), folder / "model.pt")
    dist.barrier()
    model.load_state_dict(torch.load(folder / "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
