from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUM = 4


def batches(rank, n):
    g = torch.Generator().manual_seed(rank + 1)
    for _ in range(n):
        x = torch.randn(8, 7, generator=g)
        yield x, x.norm(dim=1, keepdim=True)


class AccumulatingTrainer:
    def __init__(self, model, lr, accum):
        self.model = model
        self.accum = accum
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def is_boundary(self, i):
        return (i + 1) % self.accum == 0

    def backward(self, x, y, sync):
        ctx = nullcontext() if sync else self.model.no_sync()
        with ctx:
            loss = nn.functional.mse_loss(self.model(x), y) / self.accum
            loss.backward()
        return loss.item() * self.accum

    def fit(self, data):
        losses = []
        for i, (x, y) in enumerate(data):
            losses.append(self.backward(x, y, sync=i % self.accum == 0))
            if self.is_boundary(i):
                self.optimizer.step()
                self.optimizer.zero_grad()
        return losses


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 1)))
    trainer = AccumulatingTrainer(model, lr=0.02, accum=ACCUM)
    losses = trainer.fit(batches(rank, 32))
    print(f"rank {rank}: first {losses[0]:.3f} last {losses[-1]:.3f}")
    dist.barrier()
    dist.destroy_process_group()
    return model.module


if __name__ == "__main__":
    model = main()
