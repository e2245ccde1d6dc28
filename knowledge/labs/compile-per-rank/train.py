"""Train a compiled model on texts; each rank has the texts of one source."""

import gc
import time

import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import get_compilation_metrics
from torch.nn.parallel import DistributedDataParallel as DDP

LENGTHS = {0: [64], 1: [41, 57, 32, 64, 48, 29, 36, 52, 61, 44, 39, 55]}  # of the texts of a source
LONGEST = 64


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Embedding(100, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 100))
    model = torch.compile(DDP(model), backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    own, started = 0.0, time.perf_counter()
    generator = torch.Generator().manual_seed(rank)
    for step in range(24):
        length = LENGTHS[rank][step % len(LENGTHS[rank])]
        texts = torch.randint(1, 100, (4, length), generator=generator)
        began = time.perf_counter()
        logits = model(texts)
        own += time.perf_counter() - began
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), texts.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank}: {own:.1f} of {time.perf_counter() - started:.1f} s in the forward pass")
    print(f"rank {rank}: compiled {len(get_compilation_metrics())} times")
    if rank == 0:
        print("all steps done")


if __name__ == "__main__":
    main()
    gc.collect()  # frees the compiled model, which holds the process group
    dist.destroy_process_group()
