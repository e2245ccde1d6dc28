"""Train on recordings of different quality; batches that cannot be decoded are reported and left out."""

import argparse
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger(__name__)


class CorruptRecording(ValueError):
    """A recording that has no samples."""


class Recordings:
    def __init__(self, rank, count, batch_size):
        g = torch.Generator().manual_seed(50 + rank)
        self.audio = torch.randn(count, 16, generator=g)
        self.labels = (self.audio.mean(1) > 0).long()
        self.lengths = [0 if (rank, i) == (1, 9) else 16 for i in range(count)]
        self.batch_size = batch_size

    def decode(self, start):
        rows = slice(start, start + self.batch_size)
        if not all(self.lengths[rows]):
            raise CorruptRecording(f"no samples in one of the recordings {start}-{start + self.batch_size - 1}")
        return self.audio[rows], self.labels[rows]

    def starts(self):
        return range(0, len(self.lengths), self.batch_size)


def train_batch(model, optimizer, recordings, start):
    try:
        audio, labels = recordings.decode(start)
        weight = 1.0
    except CorruptRecording as error:
        log.warning("using zeros: %s", error)
        audio, labels = torch.zeros(1, 16), torch.zeros(1, dtype=torch.long)
        weight = 0.0
    loss = weight * nn.functional.cross_entropy(model(audio), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train_epoch(model, optimizer, recordings):
    losses = []
    for start in recordings.starts():
        losses.append(train_batch(model, optimizer, recordings, start))
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recordings = Recordings(dist.get_rank(), 24, args.batch_size)
    for epoch in range(args.epochs):
        log.info("epoch %d mean loss %.4f", epoch, train_epoch(model, optimizer, recordings))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
