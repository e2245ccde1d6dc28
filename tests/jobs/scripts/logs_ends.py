"""A short job of a few ranks that ends in one of several ways, for what it leaves in its logs."""

import atexit
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

way = sys.argv[1]
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
rank = dist.get_rank()
if rank != 1:  # those that only notice may have their say before the launcher ends them, and end after rank 1
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    atexit.register(time.sleep, 2)
x = torch.ones(4)
for step in range(5):
    dist.all_reduce(x)
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
if way == "raises":
    if rank == 1:
        raise ValueError("no such sample")  # RAISES
    dist.all_reduce(x)
elif way == "killed":
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)
elif way == "differs":
    if rank == 1:
        dist.broadcast(x, 0)  # DIFFERS
    else:
        dist.all_reduce(x)
elif way == "shape":
    x = torch.ones(8 if rank == 2 else 4)
    dist.all_reduce(x)  # SHAPE
elif way == "absent":
    if rank == 1:
        time.sleep(60)
    dist.monitored_barrier(timeout=timedelta(seconds=3), wait_all_ranks=True)
elif way == "late":
    if rank == 1:
        time.sleep(60)
    dist.all_reduce(x)
dist.destroy_process_group()
