import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Categorical


class Walk:
    """A random walk which ends at either side."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def reset(self):
        self.place = 0
        return torch.zeros(1)

    def step(self, action):
        self.place += 1 if action == 1 else -1
        if self.random.random() < 0.2:
            self.place += 1
        return torch.tensor([float(self.place)]), float(self.place > 0), abs(self.place) >= 4


def average(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    torch.manual_seed(100 + dist.get_rank())
    env = Walk(seed=dist.get_rank())
    for episode in range(30):
        state, done = env.reset(), False
        while not done:
            choice = Categorical(logits=policy(state))
            action = choice.sample()
            state, reward, done = env.step(action.item())
            loss = -choice.log_prob(action) * reward
            optimizer.zero_grad()
            loss.backward()
            average(policy)
            optimizer.step()
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
