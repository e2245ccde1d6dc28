import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Data:
    def __init__(self, batch):
        self.set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        self.sampler = DistributedSampler(self.set)
        self.loader = DataLoader(self.set, batch_size=batch, sampler=self.sampler)


def main():
    dist.init_process_group("gloo")
    data = Data(8)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        data.sampler.set_epoch(epoch)
        for x, y in data.loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    dist.destroy_process_group()


main()
