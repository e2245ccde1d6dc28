"""Trains a model with two heads, of which one step uses one."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.classes = nn.Linear(8, 3)
        self.boxes = nn.Linear(8, 4)

    def forward(self, x, with_boxes):
        hidden = self.body(x).relu()
        classes = self.classes(hidden)
        return (classes, self.boxes(hidden)) if with_boxes else (classes, None)


def main():
    dist.init_process_group("gloo")
    model = DDP(TwoHeads())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        classes, boxes = model(torch.randn(4, 8), with_boxes=step % 2 == 0)
        loss = classes.square().mean() + (0 if boxes is None else boxes.square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("done", flush=True)
    dist.destroy_process_group()


main()
