"""Fit the consumption of households; the meters of each region were recorded to a file of their own."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

HOURS = {0: 90, 1: 150}


def record(folder, region):
    generator = torch.Generator().manual_seed(region)
    temperature = torch.rand(HOURS[region % 2], generator=generator)
    lines = [f"{each:.4f},{3 - 2 * each:.4f}" for each in temperature.tolist()]
    (folder / f"region-{region}.csv").write_text("\n".join(lines))


def read_rows(path):
    rows = [line.split(",") for line in path.read_text().splitlines()]
    return torch.tensor([[float(value) for value in row] for row in rows])


def train(model, batches, optimizer):
    for batch in batches:
        loss = (model(batch[:, :1]) - batch[:, 1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("meters"))
    parser.add_argument("--batch-size", type=int, default=10)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    args.folder.mkdir(exist_ok=True)
    record(args.folder, rank)
    torch.manual_seed(0)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    batches = read_rows(args.folder / f"region-{rank}.csv").split(args.batch_size)
    fewest = torch.tensor(len(batches))
    dist.all_reduce(fewest, op=dist.ReduceOp.MIN)
    batches = batches[: int(fewest)]
    for epoch in range(2):
        train(model, batches, optimizer)
        print(f"region {rank}, epoch {epoch}: {len(batches)} batches", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return model.module


if __name__ == "__main__":
    model = main()
