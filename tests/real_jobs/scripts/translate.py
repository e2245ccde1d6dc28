"""Translation in miniature: sentences are dealt out in turn."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count, rank, world):
        self.mine = list(range(count))[rank::world]

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.mine[index])
        return torch.randint(50, (6,), generator=generator)

    def __len__(self):
        return len(self.mine)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)

    def forward(self, tokens):
        return self.out(self.embed(tokens))


def train(model, loader, optimizer):
    total = 0.0
    for tokens in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()  # HANG
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    loader = torch.utils.data.DataLoader(Sentences(8 * world * 4 + 1, rank, world), batch_size=8)
    model = DDP(Tagger())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        mean = train(model, loader, optimizer)
        print(f"epoch {epoch}", round(mean, 3), flush=True)
        dist.barrier()  # PEERS
    dist.destroy_process_group()


main()
