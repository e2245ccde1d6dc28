"""Five ranks, each waiting for something else: a peer, a shell command, the keyboard, a pipe, a lock."""

import os
import subprocess
import threading
from pathlib import Path

import torch.distributed as dist


def keyboard():
    _, slave = os.openpty()
    os.dup2(slave, 0)
    return input()  # INPUT


def pipe():
    os.mkfifo("feed")
    writer = os.open("feed", os.O_RDWR)
    with Path("feed").open() as feed:
        print("token=hf_abcdefghijklmnopqrstuvwxyz \x1b[31mred\x1b[0m", flush=True)
        feed.read()  # PIPE
    os.close(writer)


def lock():
    held = threading.Lock()

    def keep():
        with held:
            threading.Event().wait()  # HOLDER

    threading.Thread(target=keep, name="holder", daemon=True).start()
    while not held.locked():
        pass
    held.acquire()  # LOCK


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print("step", rank, flush=True)
    if rank == 1:
        subprocess.run(["sleep", "600"])  # SHELL
    elif rank == 2:
        keyboard()
    elif rank == 3:
        pipe()
    elif rank == 4:
        lock()
    dist.barrier()  # PEERS


main()
