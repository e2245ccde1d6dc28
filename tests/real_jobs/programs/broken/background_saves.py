import os

import torch
import torch.distributed as dist
from torch import nn
import torch.distributed.checkpoint as dcp


def main():
    dist.init_process_group("gloo")
    root = "bg"
    model = nn.Sequential(*(nn.Linear(400, 400) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 400)).square().mean().backward()
        optimizer.step()
        dcp.async_save({"model": model.state_dict()}, checkpoint_id=f"{root}/{step}")
    dist.destroy_process_group()
    return f"{root}/2"


last = main()
