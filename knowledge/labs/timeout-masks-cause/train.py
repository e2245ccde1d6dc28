"""Simulate a particle system on each rank and train a model of its energy."""

import datetime
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LONG_S = {(1, 2): 5.0}  # seconds for a simulation that has not come to rest after 50 steps


def simulate(generator, at_least_s):
    """Return the states of particles that attract each other."""
    until = time.monotonic() + at_least_s
    place = torch.randn(256, 3, generator=generator)
    speed = torch.zeros_like(place)
    states = []
    while len(states) < 50 or time.monotonic() < until:
        apart = place[:, None] - place[None, :]
        force = -(apart / (apart.square().sum(-1, keepdim=True) + 0.5)).sum(1)
        speed = speed + 0.001 * force
        place = place + 0.001 * speed
        states.append(torch.cat([place.mean(0), speed.square().mean(0)]))
    return torch.stack(states)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(rank)
    model = DDP(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for round_ in range(4):
        began = time.monotonic()
        states = simulate(generator, LONG_S.get((rank, round_), 0))
        print(f"rank {rank}, round {round_}: simulated for {time.monotonic() - began:.1f} s")
        loss = nn.functional.mse_loss(model(states), states[:, 3:].sum(1, keepdim=True))
        mean = loss.detach() / world_size
        dist.all_reduce(mean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"round {round_}: loss {mean.item():.4f}")
    if rank == 0:
        print("all rounds done")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
