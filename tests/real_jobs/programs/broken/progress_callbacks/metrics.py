"""Averages of losses and metrics."""

import torch
import torch.distributed as dist


class RunningMean:
    def __init__(self):
        self.total = torch.zeros(2, dtype=torch.float64)

    def update(self, value, n=1):
        self.total += torch.tensor([value * n, n], dtype=torch.float64)

    def compute(self):
        """Return the mean over everything that all processes have added."""
        total = self.total.clone()
        if dist.is_initialized():
            dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def reset(self):
        self.total.zero_()
