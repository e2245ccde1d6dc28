"""A short job of a few ranks that ends in one of several ways, for what it leaves in its logs."""

import atexit
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def meet():
    """Wait for all before the short time-out counts: an import may take longer on one rank than on the others. The pid
    of rank 1."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    limit = timedelta(minutes=5)
    store = dist.TCPStore(address, port, is_master=False, timeout=limit)  # pyright: ignore[reportPrivateImportUsage]
    store.set(f"pid of rank {os.environ['RANK']}", str(os.getpid()))
    pids = [int(store.get(f"pid of rank {rank}")) for rank in range(3)]
    return pids[1]


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def end_late(pid):
    """Those that only notice may have their say before the launcher ends them, and end after the one that failed."""
    while way in ("raises", "killed") and not has_ended(pid):
        time.sleep(0.1)
    time.sleep(2)


way = sys.argv[1]
first = meet()
dist.init_process_group("gloo", timeout=timedelta(seconds=12))
rank = dist.get_rank()
if rank != 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    atexit.register(end_late, first)
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
    dist.monitored_barrier(timeout=timedelta(seconds=8), wait_all_ranks=True)
elif way == "late":
    if rank == 1:
        time.sleep(60)
    dist.all_reduce(x)
dist.destroy_process_group()
