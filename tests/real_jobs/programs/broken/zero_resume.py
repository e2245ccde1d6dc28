"""Sequence tagger with a sharded optimizer and periodic checkpoints."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

CKPT = "tagger.pt"


class Tagger(nn.Module):
    def __init__(self, vocab=100, dim=32, tags=5):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, dim, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * dim, tags)

    def forward(self, ids):
        return self.out(self.lstm(self.emb(ids))[0])


def save_checkpoint(model, optimizer, step, rank):
    if rank == 0:
        torch.save(
            {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
            CKPT + ".tmp",
        )
        os.replace(CKPT + ".tmp", CKPT)
        print(f"checkpoint at step {step}", flush=True)
    dist.barrier()


def load_checkpoint(model, optimizer):
    if not os.path.exists(CKPT):
        return 0
    state = torch.load(CKPT, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Tagger())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=2e-3)
    start = load_checkpoint(model, optimizer)

    gen = torch.Generator().manual_seed(1000 * start + rank)
    for step in range(start, start + 20):
        ids = torch.randint(0, 100, (16, 12), generator=gen)
        tags = (ids + ids.roll(1, 1)) % 5
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 10 == 0:
            save_checkpoint(model, optimizer, step + 1, rank)
    print(f"[{rank}] loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
