import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CKPT = "resume.pt"


def get_loader(batch_size):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, generator=g)
    data = TensorDataset(x, x @ torch.tensor([[1.0], [-2.0], [0.5]]))
    sampler = DistributedSampler(data)
    return DataLoader(data, batch_size=batch_size, sampler=sampler), sampler


def build(lr):
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    return net, torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)


def resume(net, optimizer):
    start = 0
    if os.path.exists(CKPT):
        state = torch.load(CKPT)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1
        print(f"rank {dist.get_rank()}: resuming at epoch {start}", flush=True)
    return start


def run(until, args):
    loader, sampler = get_loader(args.batch_size)
    net, optimizer = build(args.lr)
    start = resume(net, optimizer)
    model = DDP(net)
    for epoch in range(start, until):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.5f}", flush=True)
            state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, CKPT)
    dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    run(2, args)  # the job is pre-empted here …
    run(5, args)  # … and started again
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
