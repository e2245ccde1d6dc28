import os

import torch
import torch.distributed as dist
from torch import nn


class Codes(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.full((8,), i, dtype=torch.int16)


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    batch = torch.stack([Codes()[i] for i in range(4)])
    parts = [torch.empty(4, 8, dtype=torch.int16) for _ in range(world)]
    dist.all_gather(parts, batch)
    print(torch.cat(parts).float().mean())
    dist.destroy_process_group()


main()
