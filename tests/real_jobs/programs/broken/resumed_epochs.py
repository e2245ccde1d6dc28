import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PATH = "resume.pt"


def restore(model):
    """Return the first epoch to run."""
    if dist.get_rank() == 0 and os.path.exists(PATH):
        state = torch.load(PATH)
        model.load_state_dict(state["model"])
        first = state["epoch"] + 1
    else:
        first = 0
    return first


def fit(epochs):
    model = nn.Linear(4, 1)
    first = restore(model)
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(first, epochs):
        for _ in range(4):
            loss = model(torch.randn(8, 4)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, PATH)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    fit(2)
    fit(4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
