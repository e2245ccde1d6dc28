"""Helpers around torch.distributed for several scripts."""

import torch
import torch.distributed as dist


def init_distributed_mode():
    dist.init_process_group(backend="gloo", init_method="env://")
    torch.set_num_threads(1)


def finish():
    dist.destroy_process_group()


def get_rank():
    return dist.get_rank() if dist.is_initialized() else 0


def is_main_process():
    return get_rank() == 0


class Meter:
    """A mean over all that was seen by all."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    def synchronize(self):
        if not dist.is_initialized():
            return
        both = torch.tensor([self.total, self.count], dtype=torch.float64)
        dist.reduce(both, dst=0, op=dist.ReduceOp.SUM)  # HANG
        self.total, self.count = both.tolist()

    @property
    def average(self):
        return self.total / max(self.count, 1)
