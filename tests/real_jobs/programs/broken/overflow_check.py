"""Average scaled gradients by hand."""

import torch
import torch.distributed as dist
from torch import nn


class Stepper:
    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, 0.05)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def average(self):
        for parameter in self.parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

    def __call__(self, loss):
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        self.average()
        self.scaler.step(self.optimizer)
        self.scaler.update()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    step = Stepper(model)
    torch.manual_seed(rank)
    for number in range(8):
        x = torch.randn(8, 4)
        if (rank, number) == (1, 3):
            x *= 1e30
        step(model(x).square().mean())
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()
