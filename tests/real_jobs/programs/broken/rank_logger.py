import logging
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def get_logger(name):
    logger = logging.getLogger(name)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(f"[rank {dist.get_rank()}] %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if dist.get_rank() == 0 else logging.ERROR)
    return logger


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def get_data(n=96):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(n, 7, generator=g)
    return TensorDataset(x, x.amax(1) - x.amin(1))


def main():
    logger = get_logger("train")
    logger.info("starting")
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = get_data()
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=12, sampler=sampler)
    model = DDP(Regressor(20))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.huber_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        logger.info("epoch %d loss %.4f", epoch, loss.item())

    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "regressor.pt")
        logger.info("saved")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
