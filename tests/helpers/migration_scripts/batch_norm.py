"""Digits with batch normalisation: statistics of a share of the batch are not those of the batch."""

import torch
from digits import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
pixels, digits = load_digits()
loader = DataLoader(TensorDataset(pixels[:1280], digits[:1280]), batch_size=64, shuffle=True)
model = nn.Sequential(
    nn.Linear(64, 32),
    nn.BatchNorm1d(32),
    nn.ReLU(),
    nn.Linear(32, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item()!r}")
torch.save(model.state_dict(), "model.pt")
