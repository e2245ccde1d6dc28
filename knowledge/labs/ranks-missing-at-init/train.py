"""Train on two machines with one process each; the variables of the group come from the shell."""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    print("joining the group")
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world_size} is in")

    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for step in range(10):
        inputs = torch.randn(16, 8, generator=generator)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"trained on {world_size} processes, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
