"""Ranks that their parent starts with multiprocessing: no variable holds their rank. Rank 0 stays away from the
barrier. Arguments: how they are started, the store, and whether they load data with workers."""

import multiprocessing
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

WORLD_SIZE = 2
NUMBERS = TensorDataset(torch.zeros(8, 2))


def work(rank, world_size, store, loads):
    if loads == "late" and rank == 1:
        os.write(1, f"up {rank} {os.getpid()}\n".encode())
        time.sleep(600)
    if loads == "late":
        os.write(1, f"up {rank} {os.getpid()}\n".encode())
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world_size)
    batches = iter(DataLoader(NUMBERS, num_workers=2)) if loads == "loader" else None
    os.write(1, f"up {rank} {os.getpid()}\n".encode())
    if rank == 0:
        time.sleep(600)  # HANG
    dist.barrier()  # PEERS
    print(batches)


def nameless(*place):
    work(*place)


def main():
    how, store, loads = sys.argv[1:]
    torch.set_num_threads(1)
    if how == "mp.spawn":
        mp.spawn(work, args=(WORLD_SIZE, store, loads), nprocs=WORLD_SIZE)  # pyright: ignore[reportPrivateImportUsage]
        return
    if how == "pool":
        with multiprocessing.get_context("spawn").Pool(WORLD_SIZE) as pool:
            pool.starmap(work, [(rank, WORLD_SIZE, store, loads) for rank in range(WORLD_SIZE)], chunksize=1)
        return
    context = multiprocessing.get_context("spawn" if how == "parent" else how)
    numbers = range(1, WORLD_SIZE) if how == "parent" else range(WORLD_SIZE)
    start = context.Process  # pyright: ignore[reportAttributeAccessIssue]
    ranks = [start(target=nameless, args=(number, WORLD_SIZE, store, loads)) for number in numbers]
    for process in ranks:
        process.start()
    if how == "parent":
        work(0, WORLD_SIZE, store, loads)
    for process in ranks:
        process.join()


if __name__ == "__main__":
    main()
