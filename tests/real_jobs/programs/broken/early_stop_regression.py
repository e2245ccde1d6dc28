import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g)
    w = torch.linspace(-1, 1, 8).unsqueeze(1)
    noise = torch.linspace(0.0, 0.6, n).unsqueeze(1)
    y = x @ w + noise * torch.randn(n, 1, generator=g)
    return x, y


@torch.no_grad()
def validate(model, x, y, criterion):
    model.eval()
    loss = criterion(model(x), y)
    model.train()
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--target", type=float, default=0.15)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    x, y = make_data(256, seed=1)
    train_set = TensorDataset(x, y)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)

    vx, vy = make_data(128, seed=2)
    vx, vy = vx.chunk(world_size)[rank], vy.chunk(world_size)[rank]

    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    criterion = nn.MSELoss()

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()

        val_loss = validate(model.module, vx, vy, criterion)
        if rank == 0:
            print(f"epoch {epoch}: val {val_loss.item():.4f}", flush=True)
        if val_loss.item() < args.target:
            print(f"rank {rank}: target reached after {epoch + 1} epochs", flush=True)
            break

    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
