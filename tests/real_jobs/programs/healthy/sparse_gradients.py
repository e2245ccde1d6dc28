"""Average only the largest gradients."""

import torch
import torch.distributed as dist
from torch import nn


def compress(grad, k):
    sizes = grad.flatten().abs()
    dist.all_reduce(sizes)
    places = sizes.topk(k).indices
    values = grad.flatten()[places]
    dist.all_reduce(values)
    values /= dist.get_world_size()
    sparse = torch.zeros_like(grad).flatten()
    sparse[places] = values
    return sparse.view_as(grad)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(rank)
    for step in range(5):
        x = torch.randn(8, 16)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        for p in model.parameters():
            p.grad = compress(p.grad, 2)
        optimizer.step()
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()
