"""Save and restore a model in a folder whose name all ranks share."""

import random
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def from_first(value):
    box = [value if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


class Experiment:
    def __init__(self, prefix):
        self.rank = dist.get_rank()
        self.name = f"{prefix}-{random.SystemRandom().randrange(10**9)}"
        self.name = from_first(self.name)
        self.folder = Path(self.name)
        if self.rank == 0:
            self.folder.mkdir()

    def save(self, model):
        if self.rank == 0:
            torch.save(model.state_dict(), self.folder / "model.pt")
        dist.barrier()

    def load(self, model):
        model.load_state_dict(torch.load(self.folder / "model.pt"))


def main():
    dist.init_process_group("gloo")
    experiment = Experiment("run")
    model = nn.Linear(2, 2)
    experiment.save(model)
    experiment.load(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
