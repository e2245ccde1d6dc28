"""Count what DDP sends for one step of four micro-batches, with and without no_sync."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4
sent = {"bytes": 0}


def counting_hook(group, bucket):
    sent["bytes"] += bucket.buffer().nbytes
    return default_hooks.allreduce_hook(group, bucket)


def sent_in_a_step(model, waits):
    """Return the MiB that are sent in one step. ``waits``: only the last micro-batch sends."""
    sent["bytes"] = 0
    for i in range(ACCUMULATE):
        last = i + 1 == ACCUMULATE
        with model.no_sync() if waits and not last else nullcontext():
            loss = model(torch.randn(8, 256)).square().mean() / ACCUMULATE
            loss.backward()
    model.zero_grad()
    return sent["bytes"] / 2**20


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)))
    model.register_comm_hook(None, counting_hook)
    sent_in_a_step(model, waits=False)

    often = sent_in_a_step(model, waits=False)
    once = sent_in_a_step(model, waits=True)
    if rank == 0:
        print(f"each micro-batch as it is: {often:.2f} MiB")
        print(f"no_sync in all but the last: {once:.2f} MiB")
        print(f"that is {often / once:.0f} times as much without no_sync")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
