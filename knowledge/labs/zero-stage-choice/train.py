"""Train with the states of Adam divided among the ranks (ZeRO stage 1), and save a checkpoint that can be resumed."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

CHECKPOINT = "last.pt"


def state_bytes(optimizer):
    """Return the bytes of the states that this rank keeps."""
    return sum(each.nbytes for state in optimizer.state.values() for each in state.values() if torch.is_tensor(each))


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    points = torch.randn(64, 64)
    targets = points.sum(dim=1, keepdim=True)
    for step in range(20):
        loss = nn.functional.mse_loss(model(points[rank::world_size]), targets[rank::world_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    shares = [torch.zeros(()) for _ in range(world_size)]
    dist.all_gather(shares, torch.tensor(float(state_bytes(optimizer.optim))))
    if rank == 0:
        print("MiB of Adam's states: " + ", ".join(f"rank {n} {share / 2**20:.2f}" for n, share in enumerate(shares)))
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, CHECKPOINT)
        saved = torch.load(CHECKPOINT)["optimizer"]["state"]
        size = sum(each.nbytes for state in saved.values() for each in state.values() if each.ndim)
        print(f"saved {size / 2**20:.2f} MiB of states, loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
