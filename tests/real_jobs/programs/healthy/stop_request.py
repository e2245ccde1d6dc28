"""Train until a file asks for a stop: the last step that ran is the one that is saved."""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Requests:
    """Requests of the user, made by files in a folder."""

    def __init__(self, folder):
        self.stop = Path(folder) / "stop-requested"

    def wants_stop(self):
        found = torch.tensor(float(dist.get_rank() == 0 and self.stop.is_file()))
        dist.broadcast(found, src=0)
        return bool(found.item())

    def clear(self):
        self.stop.unlink(missing_ok=True)


def train(model, optimizer, requests, steps, rank):
    for step in range(steps):
        x = torch.randn(16, 4)
        loss = (model(x) - x.cos()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step == 3:
            requests.stop.touch()
        time.sleep(0.3 * rank)
        if requests.wants_stop():
            if rank == 0:
                requests.clear()
            break
    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    last = train(model, optimizer, Requests("."), args.steps, rank)
    dist.barrier()
    if rank == 0:
        torch.save({"step": last, "model": model.module.state_dict()}, "stopped.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
