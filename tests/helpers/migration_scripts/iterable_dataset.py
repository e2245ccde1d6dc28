"""Digits as a stream, which has no indices that a sampler could divide among ranks."""

import torch
from digits import load_digits
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, count):
        pixels, digits = load_digits()
        self.pairs = list(zip(pixels[:count], digits[:count]))

    def __iter__(self):
        yield from self.pairs


def main():
    torch.manual_seed(0)
    loader = DataLoader(Stream(1280), batch_size=64)
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
