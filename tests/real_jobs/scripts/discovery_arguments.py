"""A rank that gets its number from its arguments. Rank 0 stays away from the barrier."""

import argparse
import os
import time

import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world-size", type=int)
    parser.add_argument("--store")
    place = parser.parse_args()
    dist.init_process_group("gloo", init_method=place.store, rank=place.rank, world_size=place.world_size)
    os.write(1, f"up {place.rank} {os.getpid()}\n".encode())
    if place.rank == 0:
        time.sleep(600)  # HANG
    dist.barrier()


main()
