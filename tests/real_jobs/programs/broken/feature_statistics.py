"""Network that normalises its inputs with running statistics of everything it has seen."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class RunningNorm(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("total", torch.zeros(features))
        self.register_buffer("squares", torch.zeros(features))

    def update(self, x):
        stats = torch.cat([torch.tensor([float(len(x))]), x.sum(0), x.square().sum(0)])
        n = len(self.total)
        self.count += stats[:1]
        self.total += stats[1 : 1 + n]
        self.squares += stats[1 + n :]

    def forward(self, x):
        if self.training:
            self.update(x.detach())
        mean = self.total / self.count
        variance = self.squares / self.count - mean.square()
        return (x - mean) / (variance.clamp_min(0) + 1e-5).sqrt()


class Critic(nn.Module):
    def __init__(self, features=4):
        super().__init__()
        self.norm = RunningNorm(features)
        self.net = nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(self.norm(x))


def observations(rank, step):
    g = torch.Generator().manual_seed(1000 * rank + step)
    scale = torch.tensor([1.0, 10.0, 0.1, 3.0])
    return (torch.randn(16, 4, generator=g) + rank) * scale


def main(steps=12):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    critic = DDP(Critic(), broadcast_buffers=False)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    for step in range(steps):
        x = observations(rank, step)
        loss = (critic(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    critic.eval()
    with torch.no_grad():
        value = critic.module(torch.ones(1, 4)).item()
    print(f"rank {rank} value of the reference observation {value:.6f}", flush=True)
    dist.barrier()
    return torch.tensor([value])


if __name__ == "__main__":
    reference_value = main()
    dist.destroy_process_group()
