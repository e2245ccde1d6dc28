"""Train and write the losses in a thread, so that the disk does not slow the steps down."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class LossWriter:
    def __init__(self, path):
        self.path = path
        self.lines = queue.Queue()
        self.thread = threading.Thread(target=self._write, name="writer")
        self.thread.start()

    def _write(self):
        with open(self.path, "w") as file:
            while (line := self.lines.get()) is not None:
                file.write(line + "\n")

    def add(self, line):
        self.lines.put(line)

    def finish(self):
        self.lines.put(None)
        self.thread.join()


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    writer = LossWriter(f"loss-{rank}.txt")

    points = torch.randn(256, 8)
    data = TensorDataset(points, points.sum(dim=1, keepdim=True))
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, (inputs, targets) in enumerate(loader):
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            writer.add(f"{epoch} {step} {loss.item():.4f}")
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")

    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
        print("training finished, model saved")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
