"""Resume from the newest checkpoint in the scratch folder of the worker."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

EPOCHS, STEPS = 6, 4


class Run:
    def __init__(self, scratch):
        self.scratch = scratch
        self.scratch.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        self.net = nn.Linear(4, 2)
        self.first_epoch = 0

    def newest(self):
        return max(self.scratch.glob("epoch*.pt"), default=None)

    def resume(self):
        path = self.newest()
        if path is not None:
            state = torch.load(path)
            self.net.load_state_dict(state["net"])
            self.first_epoch = state["epoch"] + 1
        agreed = [self.first_epoch]
        dist.broadcast_object_list(agreed, src=0)
        self.first_epoch = agreed[0]

    def save(self, epoch):
        torch.save({"net": self.net.state_dict(), "epoch": epoch}, self.scratch / f"epoch{epoch:03d}.pt")

    def train(self, rank):
        model = DDP(self.net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(self.first_epoch, EPOCHS):
            g = torch.Generator().manual_seed(epoch * 2 + rank)
            for _ in range(STEPS):
                x = torch.randn(8, 4, generator=g)
                loss = (model(x) - x[:, :2]).abs().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            self.save(epoch)
            print(f"rank {rank} epoch {epoch} loss {loss.item():.4f}", flush=True)


def earlier_job(scratch, rank):
    """Leave what a job leaves that was killed while the workers were saving."""
    run = Run(scratch)
    for epoch in range(2 - rank):
        run.save(epoch)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    scratch = Path(f"scratch/worker{rank}")
    earlier_job(scratch, rank)
    run = Run(scratch)
    run.resume()
    run.train(rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
