"""Train a stencil network on a field that is split between ranks; neighbours exchange boundary columns."""

import torch
import torch.distributed as dist
from torch import nn

COLUMNS, ROWS, HALO = 64, 4096, 8


def exchange(field, rank, world_size):
    """Return the columns of the neighbours to the left and to the right of this rank's part."""
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    from_left = torch.empty(ROWS, HALO)
    from_right = torch.empty(ROWS, HALO)
    to_left = field[:, :HALO].contiguous()
    to_right = field[:, -HALO:].contiguous()
    if rank % 2 == 0:
        dist.send(to_right, dst=right)
        dist.recv(from_left, src=left)
        dist.send(to_left, dst=left)
        dist.recv(from_right, src=right)
    else:
        dist.recv(from_left, src=left)
        dist.send(to_right, dst=right)
        dist.recv(from_right, src=right)
        dist.send(to_left, dst=left)
    return from_left, from_right


def local_field(rank, world_size):
    width = COLUMNS // world_size
    x = torch.linspace(0, 6.28, COLUMNS)[rank * width : (rank + 1) * width]
    y = torch.linspace(0, 1, ROWS).unsqueeze(1)
    return torch.sin(x) * y


def train(rank, world_size, steps=5):
    torch.manual_seed(0)
    stencil = nn.Conv1d(1, 1, 2 * HALO + 1, bias=False)
    optimizer = torch.optim.SGD(stencil.parameters(), lr=1e-2)
    field = local_field(rank, world_size)
    for step in range(steps):
        left, right = exchange(field, rank, world_size)
        padded = torch.cat([left, field, right], dim=1).unsqueeze(1)
        loss = (stencil(padded).squeeze(1) - field).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(stencil.weight.grad)
        stencil.weight.grad /= world_size
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()
