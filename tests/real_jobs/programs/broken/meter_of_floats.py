import os

import torch
import torch.distributed as dist
from torch import nn


class Meter:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def update(self, value, n):
        self.total += value * n
        self.count += n

    def reduce(self):
        packed = [self.total, self.count]
        dist.all_reduce(packed)
        return packed[0] / packed[1]


def main():
    dist.init_process_group("gloo")
    model = nn.Linear(4, 2)
    meter = Meter()
    for _ in range(5):
        x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
        loss = nn.functional.cross_entropy(model(x), y)
        meter.update(loss.item(), len(x))
    print("loss", float(meter.reduce()))
    dist.destroy_process_group()


main()
