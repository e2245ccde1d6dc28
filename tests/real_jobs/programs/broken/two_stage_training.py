"""Train a base model, save it, and start the second stage from the saved weights."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.body(x))


def batch(generator):
    x = torch.randn(32, 4, generator=generator)
    return x, x.prod(1, keepdim=True) + x.sum(1, keepdim=True)


def run_stage(model, steps, lr, generator):
    """Train and return the loss of the first and of the last step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        x, y = batch(generator)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def save(model, path):
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict()}, path)
    dist.barrier()


def load(model, path):
    state = torch.load(path, map_location="cpu")["model"]
    model.load_state_dict(state, strict=False)
    return model


def main(args):
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(dist.get_rank())
    torch.manual_seed(args.seed)
    first = DDP(Regressor())
    begin, end = run_stage(first, args.steps, 1e-2, generator)
    print(f"stage 1: loss {begin:.4f} -> {end:.4f}")
    save(first, Path(args.checkpoint))
    second = DDP(load(Regressor(), Path(args.checkpoint)))
    resumed, final = run_stage(second, args.steps, 1e-3, generator)
    print(f"stage 2: loss {resumed:.4f} -> {final:.4f}")
    dist.barrier()
    return begin, end, resumed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--checkpoint", default="stage1.pt")
    first_loss, trained_loss, resumed_loss = main(parser.parse_args())
