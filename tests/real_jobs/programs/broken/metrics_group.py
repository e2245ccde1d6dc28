import torch
import torch.distributed as dist
from torch import nn


class MetricStore:
    """Keeps what is measured at each step and merges the ranks' records on rank 0."""

    def __init__(self):
        self.rank = dist.get_rank()
        self.records = []
        self.history = []
        # objects travel over gloo, whatever the default group uses
        self.group = None
        if self.rank == 0:
            self.group = dist.new_group(backend="gloo")
            self.history.append({"world_size": dist.get_world_size()})

    def add(self, **values):
        self.records.append({"rank": self.rank, **values})

    def merge(self):
        gathered = [None] * dist.get_world_size() if self.rank == 0 else None
        dist.gather_object(self.records, gathered, dst=0, group=self.group)
        if self.rank == 0:
            for records in gathered:
                self.history.extend(records)
        self.records = []


def average_gradients(model):
    size = dist.get_world_size()
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= size


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 1))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    store = MetricStore()

    torch.manual_seed(rank)
    for step in range(12):
        x = torch.randn(16, 5)
        y = x.prod(1, keepdim=True)
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        store.add(step=step, loss=loss.item())
        if step % 4 == 3:
            store.merge()

    if rank == 0:
        print(len(store.history), "records, the last", store.history[-1])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
