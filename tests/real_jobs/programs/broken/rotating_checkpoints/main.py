"""Train and keep the newest checkpoints."""

import argparse

import torch
import torch.distributed as dist
from keeper import CheckpointKeeper
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--save-every", type=int, default=3)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--out", default="out/checkpoints")
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(6, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keeper = CheckpointKeeper(args.out, args.keep)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, args.steps + 1):
        x = torch.randn(8, 6, generator=generator)
        loss = (model(x) - x.sort(1).values).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.save_every == 0:
            path = keeper.save(step, model)
            if dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.4f} saved {path}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
