import os

import torch
import torch.distributed as dist
from torch import nn
import torch.distributed.checkpoint as dcp


class Checkpointer:
    def __init__(self, root, rank):
        self.path = os.path.join(root, "latest")

    def save(self, model, optimizer, step):
        state = {"model": model.state_dict(), "step": step}
        dcp.save(state, checkpoint_id=self.path)

    def load(self, model):
        state = {"model": model.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=self.path)
        model.load_state_dict(state["model"])
        return state["step"]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(4, 4)
    keeper = Checkpointer("ckpts", rank)
    keeper.save(model, None, 3)
    print(keeper.load(model))
    dist.destroy_process_group()


main()
