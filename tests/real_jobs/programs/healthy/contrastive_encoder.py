"""Contrastive training of an encoder with a projection that is dropped afterwards."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self, inputs=8, width=16, projection=4):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width))
        self.projector = nn.Linear(width, projection)

    def embed(self, x):
        return F.normalize(self.projector(self.backbone(x)), dim=1)

    def forward(self, a, b):
        return self.embed(a), self.embed(b)


def info_nce(za, zb, temperature):
    logits = za @ zb.t() / temperature
    return F.cross_entropy(logits, torch.arange(len(za)))


def views(generator, n):
    base = torch.randn(n, 8, generator=generator)
    return base + 0.1 * torch.randn(n, 8, generator=generator), base + 0.1 * torch.randn(n, 8, generator=generator)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=0.2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        a, b = views(generator, args.batch_size)
        za, zb = model(a, b)
        loss = info_nce(za, zb, args.temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            with torch.no_grad():
                spread = model.module.embed(a).std(0).mean().item()
            print(f"step {step} loss {loss.item():.4f} spread {spread:.3f}")
    dist.barrier()
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    encoder = main()
