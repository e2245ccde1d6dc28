"""Train with options of the command line; started by torch.distributed.launch for years."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.1)
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        inputs = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    local_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(local_ranks, args.local_rank)
    if args.local_rank == 0:
        print(f"{args.steps} steps on the local ranks {local_ranks}, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
