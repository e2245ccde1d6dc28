"""Started by hand, without a launcher that would end the others: rank 1 dies, rank 0 waits for it."""

import os
import signal
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    print("rank 1 is about to end", flush=True)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("no batch left")  # ERROR
if sys.argv[1] == "kill" and "WAIT_ON" in os.environ:
    signal.pause()
dist.barrier()
