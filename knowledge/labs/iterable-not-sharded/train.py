"""Train on a stream of lines, as it comes from a large file."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

LINES = 192


class Lines(IterableDataset):
    """Yields the number of a line and the numbers in it."""

    def __init__(self, path):
        self.path = path

    def read(self):
        with open(self.path) as file:
            yield from file

    def __iter__(self):
        for line in self.read():
            number, *values = line.split()
            yield int(number), torch.tensor([float(each) for each in values])


def write_lines(path):
    """Replaces the export of a table."""
    generator = torch.Generator().manual_seed(1)
    with open(path, "w") as file:
        for number in range(LINES):
            values = torch.randn(8, generator=generator).tolist()
            file.write(" ".join([str(number), *(f"{each:.4f}" for each in values)]) + "\n")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    if rank == 0:
        write_lines("lines.txt")
    dist.barrier()

    loader = DataLoader(Lines("lines.txt"), batch_size=8)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    reads = torch.zeros(LINES)
    for numbers, values in loader:
        reads[numbers] += 1
        loss = model(values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dist.all_reduce(reads)
    if rank == 0:
        print(f"loss {loss.item():.3f}; in one epoch each line was used {reads.min():.0f} to {reads.max():.0f} times")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
