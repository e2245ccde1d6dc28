import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from meters import AverageMeter


class Fit:
    def __init__(self, model, rank):
        self.model = DDP(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.is_main = rank == 0
        self.meter = AverageMeter()

    def step(self, inputs, targets):
        loss = F.mse_loss(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.meter.update(loss.item(), len(inputs))

    def report(self, epoch):
        loss = self.meter.value()
        if self.is_main:
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    fit = Fit(torch.nn.Linear(4, 1), rank)
    for epoch in range(3):
        for _ in range(5):
            inputs = torch.randn(8, 4)
            fit.step(inputs, inputs.sum(1, keepdim=True))
        fit.report(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
