"""Average gradients by hand, all reductions at once."""

import time

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model):
    world_size = dist.get_world_size()
    works = []
    for parameter in model.parameters():
        works.append(dist.all_reduce(parameter.grad, async_op=True))
        time.sleep(0.2 * dist.get_rank())  # a slower rank
        parameter.grad /= world_size
    for work in works:
        work.wait()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        x = torch.randn(16, 64)[dist.get_rank() :: 2]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        time.sleep(0.2 * dist.get_rank())
        average_gradients(model)
        optimizer.step()
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()
