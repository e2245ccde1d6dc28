"""Train and report every fifth epoch to the experiment tracker."""

import torch
import torch.distributed as dist
import tracker
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    run = tracker.Run(tracker.start_tracker())

    points = torch.randn(256, 8)
    data = TensorDataset(points, points.sum(dim=1, keepdim=True))
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
            if epoch % 5 == 0:
                run.log(epoch=epoch, loss=loss.item())

    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
        print(f"trained and saved; the tracker has received {len(tracker.Tracker.reports)} reports")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
