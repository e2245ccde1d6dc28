"""Lower the learning rate when the validation loss no longer falls."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Options:
    epochs: int = 16
    batch_size: int = 16
    lr: float = 0.3
    factor: float = 0.5
    patience: int = 0
    seed: int = 0


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=g)
    return TensorDataset(x, x[:, :1] * x[:, 1:2] + 0.3 * torch.randn(n, 1, generator=g))


def loader_for(dataset, options, shuffle):
    sampler = DistributedSampler(dataset, shuffle=shuffle, seed=options.seed)
    return DataLoader(dataset, options.batch_size, sampler=sampler)


class Experiment:
    def __init__(self, options):
        self.options = options
        torch.manual_seed(options.seed)
        self.model = DDP(nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.lr)
        self.scheduler = ReduceLROnPlateau(self.optimizer, factor=options.factor, patience=options.patience)
        self.train_loader = loader_for(make(128, 1), options, shuffle=True)
        self.val_loader = loader_for(make(64, 2), options, shuffle=False)

    def train_epoch(self, epoch):
        self.model.train()
        self.train_loader.sampler.set_epoch(epoch)
        for x, y in self.train_loader:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()

    @torch.no_grad()
    def validation_loss(self):
        self.model.eval()
        losses = [nn.functional.mse_loss(self.model(x), y) for x, y in self.val_loader]
        mean = torch.stack(losses).mean()
        return mean.item()

    def run(self):
        for epoch in range(self.options.epochs):
            self.train_epoch(epoch)
            val_loss = self.validation_loss()
            self.scheduler.step(val_loss)
            if dist.get_rank() == 0:
                print(f"epoch {epoch} val {val_loss:.4f} lr {self.optimizer.param_groups[0]['lr']:.5f}")
        return self.model


if __name__ == "__main__":
    dist.init_process_group("gloo")
    fitted = Experiment(Options()).run()
    dist.barrier()
