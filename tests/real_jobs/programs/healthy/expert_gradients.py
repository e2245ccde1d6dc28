"""Average the gradients of a mixture of experts by hand."""

import torch
import torch.distributed as dist
from torch import nn


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 1) for _ in range(3))

    def forward(self, x):
        chosen = int(x.sum() > 0)
        return self.experts[chosen](x)


def sync(model):
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Mixture()
    torch.manual_seed(dist.get_rank() + 5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(6):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        sync(model)
        optimizer.step()
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()
