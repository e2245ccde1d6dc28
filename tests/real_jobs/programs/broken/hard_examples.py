"""Collect the samples that the model gets wrong from all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def hard_examples(model, loader):
    found = []
    for ids, x, y in loader:
        wrong = (model(x).argmax(1) != y).nonzero().flatten()
        found.append(ids[wrong])
    mine = torch.cat(found)
    parts = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return torch.cat(parts)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(64), torch.randn(64, 4), torch.randint(0, 3, (64,)))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
    with torch.no_grad():
        print(len(hard_examples(nn.Linear(4, 3), loader)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
