"""Train a model on all ranks, and compare a step with one without communication."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile

MICRO_BATCHES = 1  # of a step; the gradients are averaged at the end of the last one


def step(model, optimizer, batch, ends_with_sync):
    for number in range(MICRO_BATCHES):
        model.require_backward_grad_sync = ends_with_sync and number == MICRO_BATCHES - 1
        loss = model(batch).square().mean() / MICRO_BATCHES
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def fastest_s(steps, *args):
    """The seconds of the fastest step without communication, and of the fastest with it, as others use the CPU too."""
    taken = {False: [], True: []}
    for ends_with_sync in [False, True] * (1 + steps):
        began = time.perf_counter()
        step(*args, ends_with_sync)
        taken[ends_with_sync].append(time.perf_counter() - began)
    return min(taken[False][1:]), min(taken[True][1:])


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DDP(nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(8, 1024)

    alone, together = fastest_s(max(3, 20 // MICRO_BATCHES), model, optimizer, batch)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step(model, optimizer, batch, True)
    if rank == 0:
        samples = MICRO_BATCHES * len(batch)
        print(f"one process: {samples / alone:.0f} samples/s, {world_size}: {world_size * samples / together:.0f}")
        print(f"each process trains at {100 * alone / together:.0f} % of the speed of one process alone")
        exchanges = sum(each.count for each in profiler.key_averages() if "allreduce" in each.key)
        print(f"the gradients are exchanged {exchanges} times in a step")
        print(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=8, max_name_column_width=50))


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
