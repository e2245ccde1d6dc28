"""Fetches a data set once on each machine, then trains; starts its own processes."""

import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel


def download(root):
    path = Path(root) / "data.pt"
    torch.save(torch.randn(32, 4), path)
    print("downloaded", flush=True)
    return path


def prepare(root, local_rank):
    if local_rank == 0:  # BRANCH
        download(root)
        dist.barrier()  # HANG
    return Path(root) / "data.pt"


def worker(local_rank, world_size, root, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=local_rank, world_size=world_size)
    path = prepare(root, local_rank)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))  # PEERS
    for row in torch.load(path):
        model(row).sum().backward()


def main():
    with tempfile.TemporaryDirectory() as root:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        spawn(worker, args=(2, root, port), nprocs=2)


if __name__ == "__main__":
    main()
