"""Language model pretraining in miniature."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    vocabulary: int = 64
    width: int = 16
    steps: int = 50
    save_every: int = 4


class Bigram(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.head = nn.Linear(config.width, config.vocabulary)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


class Trainer:
    def __init__(self, config):
        self.config = config
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.is_main = self.rank == 0
        self.model = DDP(Bigram(config))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.directory = Path(tempfile.mkdtemp())

    def batch(self):
        tokens = torch.randint(self.config.vocabulary, (8, 17))
        return tokens[:, :-1], tokens[:, 1:]

    def save(self, step):
        if not self.is_main:  # BRANCH
            return
        torch.save(self.model.module.state_dict(), self.directory / f"step{step}.pt")
        print("saved", step, flush=True)
        dist.barrier()  # HANG

    def fit(self):
        for step in range(1, self.config.steps + 1):
            inputs, targets = self.batch()
            loss = F.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
            self.optimizer.zero_grad()
            loss.backward()  # PEERS
            self.optimizer.step()
            if step % self.config.save_every == 0:
                self.save(step)


def main():
    dist.init_process_group("gloo")
    try:
        Trainer(Config()).fit()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
