"""Looks at the gradients of a layer now and then."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Probe:
    def __init__(self, module, limit):
        self.module, self.limit = module, limit

    def check(self, step):
        norm = sum(p.grad.norm() for p in self.module.parameters())
        if norm > self.limit:
            breakpoint()  # HANG
        return float(norm)  # HANG


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(5, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    probe = Probe(model, limit=-1.0 if rank == 1 else float("inf"))
    for step in range(200):
        model(torch.randn(3, 5)).pow(2).sum().backward()  # PEERS
        optimizer.step()
        if step == 3:
            print("looking", flush=True)
            probe.check(step)
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
