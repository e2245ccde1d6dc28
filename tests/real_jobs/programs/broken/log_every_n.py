from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    epochs: int = 2
    batch_size: int = 4
    lr: float = 1e-2
    log_every: int = 20
    hidden: int = 32


class Spirals(Dataset):
    def __init__(self, n=160):
        t = torch.linspace(0, 6.28, n)
        self.x = torch.stack([t.cos() * t, t.sin() * t], 1)
        self.y = (t > 3.14).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        torch.manual_seed(42)
        net = nn.Sequential(nn.Linear(2, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, 2))
        self.model = DDP(net)
        self.opt = optim.SGD(self.model.parameters(), lr=cfg.lr, momentum=0.9)
        data = Spirals()
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=cfg.batch_size, sampler=self.sampler)
        self.step = 0

    def train_step(self, x, y):
        self.opt.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()
        self.step += 1
        return loss.detach()

    def log(self, loss):
        if self.rank == 0 and self.step % self.cfg.log_every == 0:
            mean = loss.reshape(1).double()
            dist.all_reduce(mean)
            mean /= self.world_size
            print(f"step {self.step:4d} | loss {mean.item():.4f}", flush=True)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                self.log(self.train_step(x, y))
            dist.barrier()
            if self.rank == 0:
                torch.save(self.model.module.state_dict(), f"epoch{epoch}.pt")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(Config()).fit()
    dist.destroy_process_group()
