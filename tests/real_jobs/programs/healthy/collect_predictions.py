import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def fit(model, x, y, epochs, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for epoch in range(epochs):
        for xb, yb in zip(x.split(10), y.split(10)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
    return loss.detach()


def collect(predictions):
    """Bring the predictions of all ranks to rank 0, in order."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty_like(predictions) for _ in range(world_size)] if rank == 0 else None
    dist.gather(predictions, gather_list=parts, dst=0)
    if rank == 0:
        return torch.cat(parts)
    return None


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(120, 6)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    mine = slice(rank * 60, (rank + 1) * 60)

    model = DDP(nn.Linear(6, 3))
    loss = fit(model, x[mine], y[mine], epochs=5, lr=0.2)
    losses = [torch.zeros_like(loss) for _ in range(world_size)]
    dist.all_gather(losses, loss)
    if rank == 0:
        print("losses", [round(v.item(), 4) for v in losses])

    model.eval()
    with torch.no_grad():
        predictions = model.module(x[mine]).argmax(1)
    everything = collect(predictions)
    if rank == 0:
        print("accuracy", (everything == y).float().mean().item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
