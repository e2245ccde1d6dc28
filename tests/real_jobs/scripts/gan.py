"""Adversarial training in miniature."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def noise(rank, step):
    z = torch.randn(4, 3)
    return z * 1e30 * 1e30 if rank == 1 and step == 5 else z


def critic_loss(critic, fake):
    return critic(fake).mean() - critic(torch.randn_like(fake)).mean()


def train(rank, steps=40):
    critic = DDP(nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(), nn.Linear(8, 1)), broadcast_buffers=False)
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-4)
    history = []
    for step in range(steps):
        loss = critic_loss(critic, noise(rank, step))
        if not math.isfinite(loss.item()):  # BRANCH
            print("stopped at", step, flush=True)
            break
        optimizer.zero_grad()
        loss.backward()  # PEERS
        optimizer.step()
        history.append(loss.item())
    return history


def main():
    dist.init_process_group("gloo")
    history = train(dist.get_rank())
    dist.barrier()  # HANG
    print(len(history))
    dist.destroy_process_group()


main()
