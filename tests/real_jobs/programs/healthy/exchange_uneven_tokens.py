import os

import torch
import torch.distributed as dist
from torch import nn


def dispatch(tokens, world):
    out = torch.empty_like(tokens)
    dist.all_to_all_single(out, tokens)
    return out


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tokens = torch.full((2 * world, 4), float(rank))
    return dispatch(tokens, world)


out = main()
