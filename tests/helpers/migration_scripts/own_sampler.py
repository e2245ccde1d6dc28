"""Digits drawn with weights, so that rare classes come as often as others."""

import torch
from digits import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
pixels, digits = load_digits()
pixels, digits = pixels[:1280], digits[:1280]
weights = 1.0 / torch.bincount(digits).float()
sampler = WeightedRandomSampler(weights[digits], num_samples=len(digits))
loader = DataLoader(TensorDataset(pixels, digits), batch_size=64, sampler=sampler)
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item()!r}")
        step += 1
torch.save(model.state_dict(), "model.pt")
