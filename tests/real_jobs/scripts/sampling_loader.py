"""Two ranks; the loader workers of rank 1 hang while they read, rank 0 has its batch and waits for the peer."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.rank == 1:
            time.sleep(600)  # WORKER
        return torch.ones(1)


def main():
    dist.init_process_group("gloo")
    for batch in DataLoader(Slow(dist.get_rank()), batch_size=1, num_workers=2):  # FETCH
        dist.all_reduce(batch)  # PEERS


main()
