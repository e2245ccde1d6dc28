import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def loader(data, rank, world, batch):
    sampler = DistributedSampler(data, rank, world, shuffle=True)
    sampler.set_epoch(1)
    return DataLoader(data, batch_size=batch, sampler=sampler)


def main():
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(32, 4))
    for (x,) in loader(data, dist.get_rank(), dist.get_world_size(), 4):
        print(x.mean())
    dist.destroy_process_group()


main()
