"""Checkpoints; one process writes them."""

import torch
import torch.distributed as dist
from averages import of_all_ranks


def keep(model, epoch):
    if dist.get_rank() != 0:  # BRANCH
        return
    state = {"model": model.module.state_dict(), "averages": of_all_ranks(model.module)}
    torch.save(state, f"epoch{epoch}.pt")
