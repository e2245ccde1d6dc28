"""Train with float16 and a loss scaler; gradients are clipped, as large batches may have outliers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_data(samples):
    points = torch.randn(samples, 16)
    return TensorDataset(points, points[:, :4].sum(dim=1, keepdim=True))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = make_data(512)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")

    first = None
    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = 0.0
        for points, targets in loader:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.mse_loss(model(points).float(), targets)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item() / len(loader)
        first = first or total
        if rank == 0:
            print(f"epoch {epoch}: loss {total:.3f}, {100 * total / first:.0f} % of the first epoch, norm of the gradients {norm:.2f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
