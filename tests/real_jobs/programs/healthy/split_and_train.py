import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--val-fraction", type=float, default=0.25)
    return parser.parse_args()


def full_dataset(n=120):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 8, generator=g)
    return TensorDataset(x, (x.norm(dim=1) > 2.7).long())


def main(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    # dropout must differ between the ranks
    torch.manual_seed(args.seed + rank)

    data = full_dataset()
    n_val = int(len(data) * args.val_fraction)
    split = torch.Generator().manual_seed(args.seed)
    train_set, val_set = random_split(data, [len(data) - n_val, n_val], generator=split)
    train_sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, batch_size=9, sampler=train_sampler)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    val_loader = DataLoader(val_set, batch_size=15, sampler=val_sampler)

    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 2))
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        hits = torch.zeros(2)
        with torch.no_grad():
            for x, y in val_loader:
                hits += torch.tensor([(model(x).argmax(1) == y).sum().item(), len(y)])
        dist.all_reduce(hits)
        if rank == 0:
            print(f"epoch {epoch}: {hits[0].item() / hits[1].item():.3f}")
    dist.destroy_process_group()
    return train_set, val_set


if __name__ == "__main__":
    train_set, val_set = main(parse())
