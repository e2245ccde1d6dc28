"""Regression on sensor readings, some of which are corrupt; steps with a non-finite loss are left out."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

logger = logging.getLogger("train")


class Readings(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(5)
        self.x = torch.randn(n, 4, generator=g)
        self.y = self.x @ torch.tensor([1.0, -2.0, 0.5, 3.0])
        self.x[33] = float("inf")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Trainer:
    def __init__(self, model, loader, lr):
        self.model = DDP(model)
        self.loader = loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.skipped = 0

    def compute_loss(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.model(x).squeeze(1), y)

    def is_usable(self, loss):
        finite = torch.isfinite(loss).float()
        dist.all_reduce(finite, op=dist.ReduceOp.MIN)
        return bool(finite)

    def train_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        for step, batch in enumerate(self.loader):
            loss = self.compute_loss(batch)
            if not self.is_usable(loss):
                logger.warning("epoch %d step %d: loss is %s, skipping", epoch, step, loss.item())
                self.skipped += 1
                continue
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_epoch(epoch)
            if dist.get_rank() == 0:
                logger.info("epoch %d done, %d steps skipped", epoch, self.skipped)


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    data = Readings()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    trainer = Trainer(nn.Linear(4, 1), loader, lr=0.05)
    trainer.fit(epochs=2)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
