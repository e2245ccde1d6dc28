"""Fit a regression; the learning rate falls when the validation loss no longer does."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_data(samples, seed):
    """Later samples have more noise."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(samples, 8, generator=generator)
    noise = torch.linspace(0.0, 0.6, samples).unsqueeze(1) * torch.randn(samples, 1, generator=generator)
    return points, points @ torch.linspace(-1, 1, 8).unsqueeze(1) + noise


@torch.no_grad()
def validate(model, points, targets):
    return nn.functional.mse_loss(model(points), targets).item()


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = TensorDataset(*make_data(256, seed=1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    held_out, expected = (each.chunk(world_size)[rank] for each in make_data(128, seed=2))
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    for epoch in range(8):
        sampler.set_epoch(epoch)
        for points, targets in loader:
            loss = nn.functional.mse_loss(model(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = validate(model.module, held_out, expected)
        scheduler.step(score)
        if rank == 0:
            print(f"epoch {epoch}: validation loss {score:.4f}")

    rates = [torch.zeros(1) for _ in range(world_size)]
    dist.all_gather(rates, torch.tensor([optimizer.param_groups[0]["lr"]]))
    if rank == 0:
        print("learning rates of the ranks: " + ", ".join(f"{each.item():.5f}" for each in rates))


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
