"""Two ranks that part ways after some steps: one reduces once more, the other waits for it elsewhere.

Under a launcher by itself; with ``spawn`` as the argument it starts its ranks by mp.spawn.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(steps: int) -> torch.Tensor:
    total = torch.zeros(4)
    for _ in range(steps):
        total += 1
        dist.all_reduce(total)
    return total


def work(rank: int, port: int) -> None:
    if port:
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    else:
        dist.init_process_group("gloo")
    total = train(5)
    print(f"rank {dist.get_rank()} has its total", flush=True)
    if dist.get_rank() == 0:  # BRANCH
        dist.all_reduce(total)  # HANG
    dist.barrier()  # PEERS


if __name__ == "__main__":
    if sys.argv[1:] == ["spawn"]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free = int(probe.getsockname()[1])
        mp.spawn(work, args=(free,), nprocs=2)  # pyright: ignore[reportPrivateImportUsage]
    else:
        work(int(os.environ.get("RANK", "0")), 0)
