import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Bandit:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def observe(self):
        return torch.tensor([self.random.gauss(0, 1) for _ in range(4)])


class Collector:
    def __init__(self, policy, seed):
        self.env = Bandit(seed + dist.get_rank())
        self.policy = policy

    def collect(self, count):
        return torch.stack([self.env.observe() for _ in range(count)])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    policy = DDP(nn.Linear(4, 2))
    collector = Collector(policy, seed=0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    first = None
    for update in range(4):
        states = collector.collect(16)
        first = states.sum().item() if first is None else first
        loss = -policy(states).log_softmax(1)[:, 0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"first={first:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
