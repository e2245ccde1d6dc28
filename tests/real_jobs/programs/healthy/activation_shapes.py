"""Two pipeline stages: the first sends its activations to the second, which computes the loss."""

import torch
import torch.distributed as dist
from torch import nn

HIDDEN, BATCH = 16, 8


def first_stage(steps):
    encoder = nn.Sequential(nn.Linear(4, HIDDEN), nn.ReLU())
    for _ in range(steps):
        hidden = encoder(torch.randn(BATCH, 4))
        dist.send(hidden.detach(), dst=1)


def second_stage(steps):
    head = nn.Linear(HIDDEN, 1)
    for step in range(steps):
        hidden = torch.empty(BATCH, HIDDEN)
        dist.recv(hidden, src=0)
        print(step, head(hidden).mean().item())


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        first_stage(3)
    else:
        second_stage(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
