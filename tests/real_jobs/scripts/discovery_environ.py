"""A rank that gets its number from its environment. Rank 0 stays away from the barrier."""

import os
import time

import torch.distributed as dist

rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
world_size = int(os.environ.get("WORLD_SIZE") or os.environ["OMPI_COMM_WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=world_size)
os.write(1, f"up {rank} {os.getpid()}\n".encode())
if rank == 0:
    time.sleep(600)  # HANG
dist.barrier()
