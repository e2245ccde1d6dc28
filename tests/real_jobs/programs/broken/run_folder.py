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
    folder = Path(f"run-{time.time()}")
    model = nn.Linear(2, 2)
    if rank == 0:
        folder.mkdir()
        torch.save(model.state_dict(), folder / "model.pt")
    dist.barrier()
    model.load_state_dict(torch.load(folder / "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
