"""Reads samples from a slow shelf: a batch takes several seconds."""

import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Shelf(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        time.sleep(6)
        return torch.full((4,), float(index))


def main():
    dist.init_process_group("gloo")
    for step, batch in enumerate(DataLoader(Shelf(), batch_size=1, num_workers=int(sys.argv[1]))):
        dist.all_reduce(batch)
        print("step", step, flush=True)


main()
