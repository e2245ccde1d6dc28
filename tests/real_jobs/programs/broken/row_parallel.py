import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class RowParallelLinear(nn.Module):
    """A linear layer whose input features are split over the ranks."""

    def __init__(self, full, rank, world):
        super().__init__()
        part = full.in_features // world
        self.weight = nn.Parameter(full.weight.detach()[:, rank * part : (rank + 1) * part].clone())
        self.bias = nn.Parameter(full.bias.detach().clone())

    def forward(self, inputs):
        output = F.linear(inputs, self.weight, self.bias)
        dist.all_reduce(output)
        return output


class ColumnParallelLinear(nn.Module):
    def __init__(self, full, rank, world):
        super().__init__()
        self.weight = nn.Parameter(full.weight.detach().chunk(world)[rank].clone())
        self.bias = nn.Parameter(full.bias.detach().chunk(world)[rank].clone())

    def forward(self, inputs):
        return F.linear(inputs, self.weight, self.bias)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    up, down = nn.Linear(8, 32), nn.Linear(32, 8)
    block = nn.Sequential(ColumnParallelLinear(up, rank, world), nn.GELU(), RowParallelLinear(down, rank, world))
    inputs = torch.randn(4, 8)
    with torch.no_grad():
        error = (block(inputs) - down(F.gelu(up(inputs)))).abs().max()
    print(f"error={error.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
