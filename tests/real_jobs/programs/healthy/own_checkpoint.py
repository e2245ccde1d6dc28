"""Train, save a checkpoint and evaluate what was saved."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def save(model, rank):
    if rank == 0:
        torch.save(model.module.state_dict(), f"model.pt")
    dist.barrier()


def restore(rank):
    model = nn.Linear(4, 1)
    model.load_state_dict(torch.load(f"model.pt", map_location="cpu"))
    return model


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    save(model, rank)
    print(restore(rank)(torch.ones(1, 4)).item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
