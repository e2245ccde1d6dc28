"""Divide the layers of a trained model over two ranks, and compare with the whole model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

LAYERS, WIDTH = 6, 16


class SplitLinear(nn.Module):
    """The part of a linear layer with the input features of this rank."""

    def __init__(self, full, rank, world_size):
        super().__init__()
        part = full.in_features // world_size
        self.weight = nn.Parameter(full.weight[:, rank * part : (rank + 1) * part].clone())
        self.bias = nn.Parameter(full.bias.clone())

    def forward(self, hidden):
        out = F.linear(hidden, self.weight, self.bias)
        dist.all_reduce(out)
        return out


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    whole = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    split = [SplitLinear(layer, rank, world_size) for layer in whole]
    part = WIDTH // world_size

    with torch.no_grad():
        expected = hidden = torch.randn(32, WIDTH)
        for number, (layer, own) in enumerate(zip(whole, split)):
            expected = torch.tanh(layer(expected))
            hidden = torch.tanh(own(hidden[:, rank * part : (rank + 1) * part]))
            difference = (hidden - expected).abs().mean().item()
            if rank == 0:
                print(f"layer {number}: differs by {difference:.4f}")
    if rank == 0:
        print(f"the outputs differ by {difference:.4f} from those of one process, which have the norm {expected.norm():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
