"""Fine-tune a classifier from the pretrained weights that an earlier job has left."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CHECKPOINT = Path("pretrained.pt")


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(10, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.encoder(x)))


def load_weights(model, path):
    print(f"loading {path}")
    model.load_state_dict(torch.load(path, map_location="cpu"))


def write_pretrained(path):
    """Stand in for the job that pretrains."""
    torch.manual_seed(7)
    torch.save(Classifier().state_dict(), path)


def batches(rank, steps):
    g = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        x = torch.randn(16, 10, generator=g)
        yield x, x[:, :3].argmax(1)


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    if rank == 0:
        write_pretrained(CHECKPOINT)
    torch.manual_seed(0)
    net = Classifier()
    if rank == 0 and CHECKPOINT.exists():
        load_weights(net, CHECKPOINT)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(batches(rank, 12)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    return model


if __name__ == "__main__":
    trained = main()
    dist.barrier()
    dist.destroy_process_group()
