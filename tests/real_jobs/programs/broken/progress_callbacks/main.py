"""Trainer with hooks for progress and checkpoints."""

import torch
import torch.distributed as dist
from hooks import ProgressHook, SaveHook
from metrics import RunningMean
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, hooks, steps=20, batch_size=8):
        self.model = DDP(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.hooks = hooks
        self.steps = steps
        self.batch_size = batch_size
        self.step = 0
        self.mean_loss = RunningMean()
        self.generator = torch.Generator().manual_seed(dist.get_rank())

    def next_batch(self):
        x = torch.rand(self.batch_size, 3, generator=self.generator)
        return x, x.square().sum(1, keepdim=True)

    def train_step(self):
        x, y = self.next_batch()
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.mean_loss.update(loss.item(), len(x))

    def save(self, path):
        torch.save(self.model.module.state_dict(), path)

    def fit(self):
        while self.step < self.steps:
            self.step += 1
            self.train_step()
            for hook in self.hooks:
                hook.after_step(self)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
    Trainer(net, [ProgressHook(every=5), SaveHook("final.pt")]).fit()
    dist.barrier()
    dist.destroy_process_group()
