import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

SEED = 11


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 10)
        self.b = nn.Linear(10, 1)

    def forward(self, x):
        return self.b(torch.sigmoid(self.a(x)))


def broadcast_parameters(model):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)


def sync_gradients(model, world_size):
    for p in model.parameters():
        if p.grad is None:
            continue
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= world_size


def partition(x, rank, world_size):
    per_rank = len(x) // world_size
    return x[rank * per_rank : (rank + 1) * per_rank]


def run(rank, world_size, steps=15, lr=0.1):
    torch.manual_seed(SEED + rank)
    model = Model()
    broadcast_parameters(model)
    start = [p.detach().clone() for p in model.parameters()]

    g = torch.Generator().manual_seed(SEED)
    x = torch.randn(64, 6, generator=g)
    y = x[:, :1] * x[:, 1:2]
    local_x, local_y = partition(x, rank, world_size), partition(y, rank, world_size)

    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(local_x), local_y)
        loss.backward()
        sync_gradients(model, world_size)
        optimizer.step()
        value = loss.detach().clone()
        dist.all_reduce(value)
        if rank == 0:
            print("step", step, "loss", (value / world_size).item())
    return model, start, (x, y, steps, lr)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    model, start, problem = run(dist.get_rank(), dist.get_world_size())
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "manual.pt")
    dist.barrier()
    dist.destroy_process_group()
