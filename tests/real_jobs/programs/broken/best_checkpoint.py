import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BEST = "best.pt"


def train(model, steps, rank):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(32, 10, generator=g)
        y = x[:, :5].sum(1, keepdim=True).tanh()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def full_validation(net, batches=400):
    g = torch.Generator().manual_seed(999)
    total = 0.0
    for _ in range(batches):
        x = torch.randn(2000, 10, generator=g)
        total += nn.functional.mse_loss(net(x), x[:, :5].sum(1, keepdim=True).tanh()).item()
    return total / batches


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
    model = DDP(net)

    print(f"rank {rank}: loss {train(model, 50, rank):.4f}")
    if rank == 0:
        value = full_validation(net)
        print("validation", value)
        torch.save({"model": net.state_dict(), "value": value}, BEST)

    # everybody starts the second phase at the best weights
    state = torch.load(BEST, map_location="cpu")
    net.load_state_dict(state["model"])
    print(f"rank {rank}: second phase from {state['value']:.4f}")
    print(f"rank {rank}: loss {train(model, 20, rank + 100):.4f}")
    dist.barrier()
    if rank == 0:
        os.remove(BEST)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
