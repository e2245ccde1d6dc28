import json
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


def setup_run(root, name):
    path = os.path.join(root, name)
    os.makedirs(path)
    logging.basicConfig(
        filename=os.path.join(path, f"rank{dist.get_rank()}.log"),
        level=logging.INFO if dist.get_rank() == 0 else logging.WARNING,
        force=True,
    )
    return path


def synthetic_batches(rank, count, batch_size):
    g = torch.Generator().manual_seed(500 + rank)
    for _ in range(count):
        x = torch.rand(batch_size, 3, generator=g)
        yield x, torch.sin(x).sum(1, keepdim=True)


def train(model, lr, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    history = []
    for x, y in synthetic_batches(dist.get_rank(), steps, 16):
        loss = nn.functional.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        log.info("loss %.4f", loss.item())
    return history


def main():
    dist.init_process_group(backend="gloo", init_method="env://")
    run_dir = setup_run("runs", "baseline")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 1)))
    history = train(model, lr=5e-3, steps=25)
    if dist.get_rank() == 0:
        with open(os.path.join(run_dir, "history.json"), "w") as f:
            json.dump(history, f)
        torch.save(model.module.state_dict(), os.path.join(run_dir, "model.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
