"""Train a small model; the processes of this machine take care that it does not get too hot."""

import throttle
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    torch.manual_seed(1 + rank)
    for step in range(30):
        points = torch.randn(32, 8)
        loss = nn.functional.mse_loss(model(points), points.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        throttle.after_step(rank, step)
        if rank == 0 and step % 5 == 4:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    if rank == 0:
        print("all 30 steps are done")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
