"""Train on samples that are drawn by weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(64).float().unsqueeze(1))
    weights = torch.rand(64)
    sampler = WeightedRandomSampler(weights, 32, generator=torch.Generator().manual_seed(rank))
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)
    seen = []
    for (x,) in loader:
        seen += x.flatten().tolist()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()
    return seen


if __name__ == "__main__":
    seen = main()
