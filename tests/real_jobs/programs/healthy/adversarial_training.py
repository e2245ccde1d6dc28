"""Generator against discriminator; the discriminator rests while it is too strong."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.LeakyReLU(0.2), nn.Linear(16, outputs))


def real_samples(generator, n):
    angle = torch.rand(n, generator=generator) * 6.283
    return torch.stack([angle.cos(), angle.sin()], dim=1) * 2


class Gan:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(0)
        self.g, self.d = DDP(mlp(4, 2)), DDP(mlp(2, 1))
        self.g_opt = torch.optim.Adam(self.g.parameters(), lr=args.lr)
        self.d_opt = torch.optim.Adam(self.d.parameters(), lr=args.lr)
        self.noise = torch.Generator().manual_seed(dist.get_rank())
        self.accuracy = torch.tensor(0.5)

    def discriminator_step(self, fake):
        real = real_samples(self.noise, len(fake))
        logits = self.d(torch.cat([real, fake.detach()])).squeeze(1)
        labels = torch.cat([torch.ones(len(real)), torch.zeros(len(fake))])
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        self.d_opt.zero_grad()
        loss.backward()
        self.d_opt.step()
        self.accuracy = ((logits > 0).float() == labels).float().mean()
        dist.all_reduce(self.accuracy)
        self.accuracy /= dist.get_world_size()

    def generator_step(self, fake):
        loss = F.softplus(-self.d(fake)).mean()
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        return loss.item()

    def train(self):
        for step in range(self.args.steps):
            fake = self.g(torch.randn(self.args.batch_size, 4, generator=self.noise))
            if self.accuracy < self.args.threshold:
                self.discriminator_step(fake)
            else:
                self.accuracy = self.accuracy - 0.1
            loss = self.generator_step(fake)
            if step % 10 == 0:
                print(f"rank {dist.get_rank()} step {step} generator loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--threshold", type=float, default=0.7)
    dist.init_process_group("gloo")
    Gan(parser.parse_args()).train()
    dist.barrier()
    dist.destroy_process_group()
