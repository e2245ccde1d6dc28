"""Trains a small image classifier."""

import argparse

import comms
import torch
from engine import evaluate, train_one_epoch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def build_model():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))


def main(args):
    comms.init_distributed_mode()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 1, 8, 8), torch.randint(10, (96,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    held_out = DataLoader(TensorDataset(*data[:16]), batch_size=8)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    best = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_one_epoch(model, loader, optimizer)
        if comms.is_main_process():  # BRANCH
            accuracy = evaluate(model, held_out)
            best = max(best, accuracy)
            print(f"epoch {epoch} accuracy {accuracy:.2f} best {best:.2f}")
    comms.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    main(parser.parse_args())
