import os

import torch
import torch.distributed as dist
from torch import nn


class Config:
    def __init__(self, rank):
        self.rank = rank
        self.schedule = lambda step: 0.1 / (1 + step)


def main():
    dist.init_process_group("gloo")
    box = [Config(dist.get_rank())]
    dist.broadcast_object_list(box, src=0)
    print(box[0].rank)
    dist.destroy_process_group()


main()
