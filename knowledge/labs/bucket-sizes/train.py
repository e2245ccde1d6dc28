"""Measure how early in the backward pass DDP sends its first gradients, for several bucket sizes."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, DEPTH = 512, 8
sent_at = []


def noting_hook(group, bucket):
    sent_at.append(time.perf_counter())
    return default_hooks.allreduce_hook(group, bucket)


def measure(bucket_cap_mb):
    """Return the exchanges of a step, and the part of the backward pass that is over when the first one begins."""
    torch.manual_seed(0)
    layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DDP(nn.Sequential(*layers), bucket_cap_mb=bucket_cap_mb)
    model.register_comm_hook(None, noting_hook)
    parts = []
    for step in range(6):
        loss = model(torch.randn(256, WIDTH)).square().mean()
        sent_at.clear()
        began = time.perf_counter()
        loss.backward()
        if step >= 2:  # DDP reorders its buckets after the first step
            parts.append((sent_at[0] - began) / (sent_at[-1] - began))
        model.zero_grad()
    return len(sent_at), sum(parts) / len(parts)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    least = None
    for cap in (1, 2, 4, 16):
        exchanges, part = measure(cap)
        least = least or part
        if rank == 0:
            print(f"bucket_cap_mb={cap}: {exchanges} exchanges, the first after {100 * part:.0f} % of the backward pass")
    if rank == 0 and exchanges == 1 and least < part:
        print("one large bucket is sent when everything else is done")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
