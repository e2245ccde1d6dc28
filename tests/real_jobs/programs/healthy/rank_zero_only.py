import functools
import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def rank_zero_only(fn):
    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        if int(os.environ.get("RANK", 0)) == 0:
            return fn(*args, **kwargs)
        return None

    return wrapped


@rank_zero_only
def info(message):
    print(message, flush=True)


@rank_zero_only
def write_metrics(path, metrics):
    with open(path, "a") as f:
        f.write(json.dumps(metrics) + "\n")


@rank_zero_only
def save_checkpoint(model, path):
    tmp = path + ".tmp"
    torch.save(model.module.state_dict(), tmp)
    os.replace(tmp, path)


def train_epoch(model, optimizer, generator, steps=8):
    total = torch.zeros(1)
    for _ in range(steps):
        x = torch.rand(16, 2, generator=generator) * 2 - 1
        y = (x.pow(2).sum(1, keepdim=True) < 0.7).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    return total.item() / steps / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for epoch in range(5):
        loss = train_epoch(model, optimizer, generator)
        info(f"epoch {epoch}: {loss:.4f}")
        write_metrics("metrics.jsonl", {"epoch": epoch, "loss": loss})
        save_checkpoint(model, "circle.pt")
        dist.barrier()
    info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
