"""Train a model on random inputs that each process draws for itself."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SEED = 7


def target(points):
    return points.square().sum(dim=1, keepdim=True).sqrt()


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(SEED)

    drawn = []
    for step in range(40):
        points = torch.randn(16, 4)
        drawn.append(points)
        loss = nn.functional.mse_loss(model(points), target(points))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.3f}")

    own = torch.cat(drawn)
    everyone = [torch.empty_like(own) for _ in range(world_size)]
    dist.all_gather(everyone, own)
    if rank == 0:
        points = torch.cat(everyone)
        alike = torch.corrcoef(torch.stack([each.flatten() for each in everyone[:2]]))[0, 1]
        print(f"{len(points.unique(dim=0))} different points among {len(points)}")
        print(f"the points of rank 0 and rank 1 correlate by {alike:.2f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
