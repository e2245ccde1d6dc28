import os

import torch
import torch.distributed as dist
from torch import nn
import torch.distributed.checkpoint as dcp


def resume(model, folder):
    state = {"model": model.state_dict(), "epoch": 0}
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    return state["epoch"]


def main():
    dist.init_process_group("gloo")
    folder = "res"
    model = nn.Linear(4, 4)
    dcp.save({"model": model.state_dict(), "epoch": 5}, checkpoint_id=folder)
    print("epoch", resume(model, folder))
    dist.destroy_process_group()


main()
