import torch
import torch.distributed as dist


class AverageMeter:
    def __init__(self):
        self.total = torch.zeros(2)

    def update(self, value, count):
        self.total += torch.tensor([value * count, float(count)])

    def value(self):
        both = self.total.clone()
        dist.all_reduce(both)
        return (both[0] / both[1]).item()
