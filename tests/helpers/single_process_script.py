"""A script that trains in one process, to be changed for several."""

SINGLE = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8, shuffle=True)
for epoch in range(3):
    for (batch,) in loader:
        loss = model(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
