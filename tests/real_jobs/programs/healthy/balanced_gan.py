import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, noise):
        return self.net(noise)


class GanTrainer:
    def __init__(self, rank):
        self.generator = DDP(Generator())
        self.critic = DDP(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)))
        self.g_opt = torch.optim.Adam(self.generator.parameters(), lr=1e-3)
        self.c_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.rank = rank

    def critic_loss(self, real, fake):
        real_logit, fake_logit = self.critic(torch.cat([real, fake])).chunk(2)
        loss = F.softplus(-real_logit).mean() + F.softplus(fake_logit).mean()
        accuracy = ((real_logit > 0).float().mean() + (fake_logit < 0).float().mean()) / 2
        dist.all_reduce(accuracy)
        accuracy /= dist.get_world_size()
        return loss, accuracy

    def step(self, real):
        fake = self.generator(torch.randn(len(real), 4))
        loss, accuracy = self.critic_loss(real, fake.detach())
        if accuracy < 0.75:
            self.c_opt.zero_grad()
            loss.backward()
            self.c_opt.step()
        self.g_opt.zero_grad()
        F.softplus(-self.critic(fake)).mean().backward()
        self.g_opt.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    trainer = GanTrainer(rank)
    for step in range(200):
        real = torch.randn(16, 2) + 3 * (1 + rank)
        loss = trainer.step(real)
        if step % 50 == 0 and rank == 0:
            print(f"step {step} critic {loss:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
