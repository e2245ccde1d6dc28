"""Bag-of-words model; the first rank prepares the vocabulary file."""

import torch
import torch.distributed as dist
from corpus import TEXT, build_vocabulary, encode, load_vocabulary
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY = "vocabulary.json"


def prepare(rank):
    if rank == 0:
        build_vocabulary(VOCABULARY)
    return load_vocabulary(VOCABULARY)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    vocabulary = prepare(rank)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.EmbeddingBag(len(vocabulary), 8), nn.Linear(8, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    lines = TEXT[rank::world_size]
    for epoch in range(3):
        total = 0.0
        for line in lines:
            ids = torch.tensor([encode(vocabulary, line)])
            label = torch.tensor([int("shard" in line)])
            loss = nn.functional.cross_entropy(model(ids), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"epoch {epoch} loss {total / len(lines):.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
