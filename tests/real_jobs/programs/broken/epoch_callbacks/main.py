"""Train with callbacks: shuffling, logging."""

import torch
import torch.distributed as dist
from callbacks import LogCallback
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Points(Dataset):
    def __init__(self, n=40):
        self.x = torch.linspace(-1, 1, n).unsqueeze(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return i, self.x[i], self.x[i] ** 3


class Trainer:
    def __init__(self, model, dataset, callbacks, epochs=3, batch_size=4):
        self.model = DDP(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset, shuffle=True))
        self.callbacks = callbacks
        self.epochs = epochs
        self.epoch = 0
        self.last_loss = 0.0

    def call(self, name):
        for callback in self.callbacks:
            getattr(callback, name)(self)

    def fit(self):
        for epoch in range(self.epochs):
            self.epoch = epoch
            self.call("on_epoch_start")
            for ids, x, y in self.loader:
                self.seen.extend(ids.tolist())
                loss = (self.model(x) - y).pow(2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.last_loss = loss.item()
            self.call("on_epoch_end")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    callbacks = [LogCallback()]
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    Trainer(model, Points(), callbacks).fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
