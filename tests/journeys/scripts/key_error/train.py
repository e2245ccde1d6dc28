"""Trains on rows of a table; one of them lacks a column."""

import torch
import torch.distributed as dist
from rows import Rows
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def main():
    dist.init_process_group("gloo")
    data = Rows(48)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    model = DDP(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for values in loader:
        loss = model(values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
