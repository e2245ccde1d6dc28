import json
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Experiment:
    def __init__(self, steps, lr):
        self.steps = steps
        self.lr = lr
        self.history = []

    def setup(self):
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.lr)
        self.generator = torch.Generator().manual_seed(dist.get_rank())

    def step(self):
        x = torch.randn(24, 3, generator=self.generator)
        y = torch.cos(x).sum(1, keepdim=True)
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self):
        for i in range(self.steps):
            loss = self.step()
            if i % 10 == 9:
                dist.all_reduce(loss, op=dist.ReduceOp.SUM)
                self.history.append(loss.item() / dist.get_world_size())

    def teardown(self):
        dist.barrier()
        dist.destroy_process_group()

    def report(self, path):
        if dist.get_rank() == 0:
            torch.save(self.model.module.state_dict(), path + ".pt")
            with open(path + ".json", "w") as f:
                json.dump({"lr": self.lr, "history": self.history}, f)
            print("final loss", self.history[-1])


def main():
    experiment = Experiment(steps=50, lr=1e-2)
    experiment.setup()
    experiment.run()
    experiment.teardown()
    experiment.report("cosine")


if __name__ == "__main__":
    main()
