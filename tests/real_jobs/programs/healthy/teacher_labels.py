"""Send the labels that a teacher predicts to the student on the other rank."""

import torch
import torch.distributed as dist
from torch import nn


def teach(model, batches):
    for batch in batches:
        dist.send(batch, dst=1)
        labels = model(batch).argmax(dim=1)
        dist.send(labels, dst=1)


def learn(model, optimizer, count, size):
    for _ in range(count):
        batch = torch.empty(size, 4)
        dist.recv(batch, src=0)
        labels = torch.zeros(size, dtype=torch.long)
        dist.recv(labels, src=0)
        loss = nn.functional.cross_entropy(model(batch), labels.long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    if dist.get_rank() == 0:
        teach(model, torch.randn(5, 8, 4))
    else:
        learn(model, torch.optim.SGD(model.parameters(), 0.1), 5, 8)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
