"""Hand-written data parallelism: everybody starts from the weights of the first rank."""

import os

import torch
import torch.distributed as dist
from torch import nn


class Worker:
    def __init__(self):
        self.rank = int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        torch.manual_seed(torch.initial_seed() % 1000 + self.rank)
        self.model = nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def share_weights(self):
        for tensor in self.model.state_dict().values():
            dist.broadcast(tensor, src=self.local_rank)

    def sync_gradients(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(self.world_size)

    def batches(self, n):
        g = torch.Generator().manual_seed(self.rank)
        for _ in range(n):
            x = torch.randn(12, 3, generator=g)
            yield x, x.norm(dim=1, keepdim=True)

    def run(self, steps=10):
        self.share_weights()
        for step, (x, y) in enumerate(self.batches(steps)):
            loss = nn.functional.l1_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.sync_gradients()
            self.optimizer.step()
            if self.rank == 0:
                print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    worker = Worker()
    worker.run()
    dist.barrier()
    dist.destroy_process_group()
