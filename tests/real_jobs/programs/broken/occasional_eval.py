import random

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONFIG = {"steps": 40, "batch": 16, "lr": 0.03, "eval_prob": 0.2, "seed": 17}


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def sample_batch(n):
    x = torch.randn(n, 4)
    if random.random() < 0.5:  # augmentation, different on each rank
        x = x + 0.01 * torch.randn_like(x)
    return x, x.pow(2).sum(1, keepdim=True)


@torch.no_grad()
def evaluate(model, x, y):
    """Mean loss over the shards of all ranks."""
    loss = nn.functional.mse_loss(model.module(x), y)
    losses = [torch.zeros_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss)
    return torch.stack(losses).mean().item()


def train(cfg):
    rank = dist.get_rank()
    seed_everything(cfg["seed"])
    model = DDP(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    schedule = random.Random(cfg["seed"])

    seed_everything(cfg["seed"] + rank)
    val_x, val_y = sample_batch(64)
    for step in range(cfg["steps"]):
        x, y = sample_batch(cfg["batch"])
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if random.random() < cfg["eval_prob"]:
            value = evaluate(model, val_x, val_y)
            dist.barrier()
            if rank == 0:
                print(f"step {step}: validation {value:.4f}", flush=True)
    dist.barrier()
    return model


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trained = train(CONFIG)
    if dist.get_rank() == 0:
        torch.save(trained.module.state_dict(), "model.pt")
    dist.destroy_process_group()
