import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EarlyStopper:
    def __init__(self, patience=2, min_delta=0.01):
        self.patience = patience
        self.min_delta = min_delta
        self.best = float("inf")
        self.bad_epochs = 0

    def update(self, value):
        if value < self.best - self.min_delta:
            self.best = value
            self.bad_epochs = 0
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


def dataset(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    y = (x[:, 0] > torch.randn(n, generator=g)).long()
    return x, y


class Trainer:
    def __init__(self, max_epochs=30):
        self.rank = dist.get_rank()
        self.max_epochs = max_epochs
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)
        train = TensorDataset(*dataset(128, 0))
        self.sampler = DistributedSampler(train)
        self.loader = DataLoader(train, batch_size=16, sampler=self.sampler)
        self.val_x, self.val_y = dataset(64, 1)
        self.stopper = EarlyStopper()

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        for x, y in self.loader:
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        return F.cross_entropy(self.model.module(self.val_x), self.val_y).item()

    def fit(self):
        for epoch in range(self.max_epochs):
            self.train_epoch(epoch)
            stop = torch.zeros(1)
            if self.rank == 0:
                loss = self.validate()
                print(f"epoch {epoch} val {loss:.4f}", flush=True)
                stop += self.stopper.update(loss)
            if stop.item():
                print(f"rank {self.rank} stops", flush=True)
                break
        dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer()
    trainer.fit()
    dist.destroy_process_group()
