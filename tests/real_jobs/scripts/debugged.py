"""Two ranks with torch's debug server; one stays away from the barrier."""

import time

import torch
import torch.distributed as dist
from torch.distributed.debug import start_debug_server


def main():
    dist.init_process_group("gloo")
    start_debug_server(port=0)
    totals = torch.ones(3)
    dist.all_reduce(totals)
    print(f"rank {dist.get_rank()} is past the sum", flush=True)
    if dist.get_rank() == 1:
        time.sleep(3600)
    dist.barrier()


main()
