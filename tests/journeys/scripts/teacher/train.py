"""Distils a student, and keeps the averages of all ranks after each epoch."""

import torch
import torch.distributed as dist
from keep import keep
from torch.nn.parallel import DistributedDataParallel as DDP


def train_epoch(model, optimizer):
    for _ in range(4):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()  # PEERS
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        train_epoch(model, optimizer)
        print("epoch", epoch, flush=True)
        keep(model, epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
