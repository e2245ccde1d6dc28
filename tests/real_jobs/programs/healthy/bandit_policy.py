"""Policy gradient on a bandit: every rank plays its own rounds, gradients are averaged by DDP."""

import argparse
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)


class Bandit:
    """Arms with a reward that depends on a context."""

    def __init__(self, arms):
        self.arms = arms

    def contexts(self, n):
        return torch.randn(n, self.arms)

    def reward(self, context, arm):
        return context.gather(1, arm.unsqueeze(1)).squeeze(1)


def play(policy, bandit, rounds):
    context = bandit.contexts(rounds)
    chosen = torch.distributions.Categorical(logits=policy(context))
    arm = chosen.sample()
    return context, chosen.log_prob(arm), bandit.reward(context, arm)


def train(args):
    rank = dist.get_rank()
    set_seed(args.seed)
    policy = DDP(nn.Linear(args.arms, args.arms))
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)
    bandit = Bandit(args.arms)
    set_seed(args.seed + 1 + rank)
    played = []
    for iteration in range(args.iterations):
        context, log_prob, reward = play(policy, bandit, args.rounds)
        played.append(context)
        loss = -(log_prob * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and iteration % 10 == 0:
            print(f"iteration {iteration} mean reward {reward.mean().item():.3f}")
    return torch.cat(played)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--arms", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    dist.init_process_group("gloo")
    rounds = train(parser.parse_args())
    dist.barrier()
    dist.destroy_process_group()
