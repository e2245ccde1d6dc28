"""Converts the weights with a command-line tool after training."""

import os
import subprocess
from pathlib import Path

import torch
import torch.distributed as dist


def tool(*arguments):
    return subprocess.run(["tail", *arguments], capture_output=True, check=True)  # HANG


def export(rank):
    name = f"weights-{rank}.bin"
    Path(name).write_bytes(os.urandom(16))
    tool("-c", "8", name) if rank != 1 else tool("-f", name)
    print("converted", flush=True)


def main():
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    export(dist.get_rank())
    dist.barrier()  # PEERS
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
