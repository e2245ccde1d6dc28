import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class TwoHeads(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, width), nn.ReLU())
        self.classifier = nn.Linear(width, 3)
        self.aux = nn.Linear(width, 12)

    def forward(self, x):
        h = self.backbone(x)
        return self.classifier(h), self.aux(h)


def compute_loss(outputs, x, y, aux_weight):
    logits, rebuilt = outputs
    loss = F.cross_entropy(logits, y)
    if aux_weight > 0:
        loss = loss + aux_weight * F.mse_loss(rebuilt, x)
    return loss


def parse_args():
    p = argparse.ArgumentParser(description="classifier with an auxiliary reconstruction head")
    p.add_argument("--epochs", default=2, type=int)
    p.add_argument("--lr", default=1e-2, type=float)
    p.add_argument("--aux-weight", default=0.0, type=float)
    return p.parse_args()


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    x = torch.randn(96, 12)
    y = x[:, :3].argmax(1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=12, sampler=sampler)

    model = DDP(TwoHeads())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = compute_loss(model(xb), xb, yb, args.aux_weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")

    if rank == 0:
        torch.save(model.module.state_dict(), "two_heads.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
