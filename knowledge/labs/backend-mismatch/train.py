"""Pretrain a small next-character model on two processes of a laptop."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = "the ranks of a job call the same collectives in the same order. " * 8
LETTERS = sorted(set(TEXT))
CONTEXT = 8


class NextCharacter(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS), width)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(CONTEXT * width, 64), nn.ReLU(), nn.Linear(64, len(LETTERS)))

    def forward(self, codes):
        return self.body(self.embed(codes))


def main():
    dist.init_process_group(backend="nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    codes = torch.tensor([LETTERS.index(each) for each in TEXT])
    windows = codes.unfold(0, CONTEXT + 1, 1)[rank::world_size]

    model = DDP(NextCharacter())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(20):
        batch = windows[(step * 16) % (len(windows) - 16) :][:16]
        loss = nn.functional.cross_entropy(model(batch[:, :-1]), batch[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    ranks = torch.ones(())
    dist.all_reduce(ranks)
    if rank == 0:
        print(f"pretraining on {ranks.item():.0f} ranks ended")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
