"""Split one data set into training and validation parts and train on the first."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split


class Houses(Dataset):
    def __init__(self, n=80):
        g = torch.Generator().manual_seed(1)
        self.features = torch.randn(n, 3, generator=g)
        self.prices = self.features @ torch.tensor([3.0, 1.0, -2.0])

    def __len__(self):
        return len(self.prices)

    def __getitem__(self, i):
        return self.features[i], self.prices[i]


def split(dataset, fraction, seed):
    n_val = int(len(dataset) * fraction)
    generator = torch.Generator().manual_seed(seed)
    return random_split(dataset, [len(dataset) - n_val, n_val], generator=generator)


def fit(model, train_set, args):
    sampler = DistributedSampler(train_set, seed=args.seed)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x).squeeze(1), y).backward()
            optimizer.step()


def mean_error(model, dataset):
    with torch.no_grad():
        errors = [(model(x.unsqueeze(0)).squeeze() - y).abs() for x, y in dataset]
    total = torch.stack([torch.stack(errors).sum(), torch.tensor(float(len(errors)))])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main(args):
    dist.init_process_group("gloo")
    # Augmentation must differ between the ranks.
    torch.manual_seed(args.seed + dist.get_rank())
    train_set, val_set = split(Houses(), 0.25, args.seed)
    model = DDP(nn.Linear(3, 1))
    fit(model, train_set, args)
    error = mean_error(model.module, val_set)
    if dist.get_rank() == 0:
        print(f"{len(train_set)} for training, {len(val_set)} held out, mean error {error:.4f}")
    return train_set.indices, val_set.indices


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--seed", type=int, default=123)
    train_ids, val_ids = main(parser.parse_args())
    dist.barrier()
