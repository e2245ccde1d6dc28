"""Decodes frames with a library that is called through ctypes."""

import ctypes

import torch
import torch.distributed as dist

decoder = ctypes.PyDLL(None)


def decode(frame, wait_s):
    decoder.sleep(wait_s)  # HANG
    return frame * 2


def main():
    dist.init_process_group("gloo")
    frame = torch.ones(8)
    for n in range(10):
        frame = decode(frame, 3600 if (dist.get_rank(), n) == (1, 3) else 0)
        dist.all_reduce(frame)  # PEERS
        if n == 2:
            print("three frames", flush=True)


main()
