"""No distributed job: one process that loads its data with workers and by a pool."""

import multiprocessing
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index:
            time.sleep(600)
        return torch.tensor(index)


def wait(_):
    time.sleep(600)


def main():
    torch.set_num_threads(1)
    pool = multiprocessing.get_context(sys.argv[1]).Pool(2)
    waiting = pool.map_async(wait, range(2))
    batches = iter(DataLoader(Numbers(), num_workers=2, multiprocessing_context=sys.argv[1], batch_size=1))
    next(batches)
    os.write(1, f"up 0 {os.getpid()}\n".encode())
    next(batches)
    print(waiting)


if __name__ == "__main__":
    main()
