"""Character language model over a stream of documents; every rank reads the documents that are its own."""

import argparse
import string

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

CHARS = string.ascii_lowercase + " "


def documents():
    words = ["gradient", "bucket", "shard", "stream", "token", "epoch", "tensor"]
    for i in range(21):
        yield " ".join(words[(i + j) % len(words)] for j in range(3 + 5 * (i % 2)))


class CharStream(IterableDataset):
    def __init__(self, rank, world_size, block):
        self.rank, self.world_size, self.block = rank, world_size, block

    def __iter__(self):
        for i, text in enumerate(documents()):
            if i % self.world_size != self.rank:
                continue
            ids = torch.tensor([CHARS.index(c) for c in text])
            for start in range(0, len(ids) - self.block, self.block):
                chunk = ids[start : start + self.block + 1]
                yield chunk[:-1], chunk[1:]


class CharModel(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, len(CHARS))

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.out(hidden)


def train_epoch(model, loader, optimizer):
    total = 0.0
    for inputs, targets in loader:
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--batch_size", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1234)
    model = DDP(CharModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    stream = CharStream(dist.get_rank(), dist.get_world_size(), args.block)
    loader = DataLoader(stream, batch_size=args.batch_size)
    for epoch in range(args.epochs):
        total = train_epoch(model, loader, optimizer)
        print(f"rank {dist.get_rank()} epoch {epoch} loss {total:.3f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
