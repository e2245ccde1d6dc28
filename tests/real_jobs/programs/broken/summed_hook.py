"""Reduce the gradients of DDP by a hook."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def hook(state, bucket):
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(5):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()
