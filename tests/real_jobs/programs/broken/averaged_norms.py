"""Average the weights of the last epochs and measure BatchNorm's statistics for them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4) + torch.arange(64).unsqueeze(1) / 16)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)))
    averaged = AveragedModel(model.module)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        averaged.update_parameters(model.module)
    update_bn(loader, averaged)
    dist.destroy_process_group()
    return averaged


if __name__ == "__main__":
    averaged = main()
