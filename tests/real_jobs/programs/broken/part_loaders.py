"""Train on the digits with loaders for each part of the data."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_loaders():
    torch.manual_seed(0)
    parts = {
        name: TensorDataset(torch.arange(size).float().unsqueeze(1)) for name, size in (("train", 64), ("val", 16))
    }
    samplers = {name: DistributedSampler(part, shuffle=name == "train") for name, part in parts.items()}
    return {name: DataLoader(part, batch_size=8, sampler=samplers[name]) for name, part in parts.items()}


def main():
    dist.init_process_group("gloo")
    loaders = make_loaders()
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    orders = []
    for epoch in range(3):
        order = []
        for (x,) in loaders["train"]:
            order += x.flatten().tolist()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        orders.append(order)
    dist.destroy_process_group()
    return orders


if __name__ == "__main__":
    orders = main()
