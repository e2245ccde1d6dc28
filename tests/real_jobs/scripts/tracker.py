"""Sends metrics to an experiment tracker."""

import json
import os
import urllib.request

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Run:
    def __init__(self, project, enabled=True):
        self.url = f"http://{os.environ['SERVICE']}/api/{project}/log"
        self.enabled = enabled

    def log(self, **values):
        if not self.enabled:
            return
        request = urllib.request.Request(self.url, json.dumps(values).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:  # HANG
            reply.read()


def main():
    dist.init_process_group("gloo")
    run = Run("demo", enabled=dist.get_rank() == 0)
    model = DDP(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100):
        loss = model(torch.randn(4, 8)).abs().mean()
        loss.backward()  # PEERS
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 4:
            print(f"step {step}", flush=True)
            run.log(step=step, loss=loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
