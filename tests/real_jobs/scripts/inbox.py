"""Reads records ahead with an executor and takes them from an inbox."""

import queue
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist


def read(number, rank):
    if (number, rank) == (6, 0):
        raise ValueError("bad record")
    return torch.full((4,), float(number))


def pump(inbox, rank):
    for number in range(100):
        inbox.put(read(number, rank))


def main():
    dist.init_process_group("gloo")
    records = queue.Queue(maxsize=2)
    with ThreadPoolExecutor(1) as executor:
        executor.submit(pump, records, dist.get_rank())
        for _ in range(100):
            record = records.get()  # HANG
            dist.all_reduce(record)  # PEERS
            print("record", flush=True)


main()
