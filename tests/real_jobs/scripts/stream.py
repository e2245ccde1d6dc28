"""Reads documents as a stream and packs them into blocks."""

import itertools

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset


class Packed(IterableDataset):
    def __init__(self, lengths, block):
        self.lengths, self.block = lengths, block

    def __iter__(self):
        room = 0
        for length in self.lengths:
            room += length
            while room >= self.block:
                room -= self.block
                yield torch.randn(self.block)


def lengths(rank):
    return list(itertools.islice(itertools.cycle([40, 90, 70 + 60 * (rank != 2)]), 30))


class Loop:
    def __init__(self, rank):
        self.rank, self.world = rank, dist.get_world_size()
        self.model = torch.nn.Linear(64, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, batch):
        self.model(batch).mean().backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)  # PEERS
        self.optimizer.step()
        self.optimizer.zero_grad()

    def run(self):
        seen = 0
        stream = iter(DataLoader(Packed(lengths(self.rank), 64), batch_size=2))
        while (batch := next(stream, None)) is not None:
            self.step(batch)
            seen += len(batch)
        print("blocks", seen, flush=True)
        return seen


def main():
    dist.init_process_group("gloo")
    seen = Loop(dist.get_rank()).run()
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, seen)  # HANG
    print(counts)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
