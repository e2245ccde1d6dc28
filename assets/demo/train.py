"""A small data-parallel training run: four processes, a tiny model, CPU only.

torchrun --standalone --nproc-per-node=4 train.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 3
BATCH_SIZE = 32


def make_data(samples: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(samples, 8, generator=generator)
    return TensorDataset(points, (points.sum(dim=1) > 0).long())


def accuracy(model: nn.Module, data: TensorDataset) -> torch.Tensor:
    hits = torch.zeros(())
    with torch.no_grad():
        for points, labels in DataLoader(data, batch_size=BATCH_SIZE):
            hits += (model(points).argmax(dim=1) == labels).sum()
    return hits / len(data)


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> None:
    model.train()
    for points, labels in loader:
        loss = nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(model: nn.Module, data: TensorDataset, epoch: int) -> None:
    model.eval()
    rank = dist.get_rank()
    if rank == 0:
        score = accuracy(model, data)
        dist.all_reduce(score)
        score /= dist.get_world_size()
        print(f"epoch {epoch}: validation accuracy {score.item():.3f}", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    train_data = make_data(512, seed=1)
    validation_data = make_data(128, seed=100 + rank)  # each rank validates on its own share
    sampler = DistributedSampler(train_data, world_size, rank)
    loader = DataLoader(train_data, batch_size=BATCH_SIZE, sampler=sampler)

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    ddp_model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.2, momentum=0.9)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        train_epoch(ddp_model, loader, optimizer)
        validate(model, validation_data, epoch)
        dist.barrier()

    trained = accuracy(model, train_data).item()
    if rank == 0:
        print(f"done, accuracy {trained:.3f} on the training data", flush=True)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
