import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset


def shard(data, rank, world):
    return Subset(data, range(rank, len(data), world))


def predict(model, loader, world):
    outputs = []
    with torch.no_grad():
        for (inputs,) in loader:
            scores = model.module(inputs)
            parts = [torch.empty_like(scores) for _ in range(world)]
            dist.all_gather(parts, scores)
            outputs.extend(parts)
    return torch.cat(outputs)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = TensorDataset(torch.randn(35, 4))
    loader = DataLoader(shard(data, rank, world), batch_size=9)
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scores = predict(model, loader, world)
    if rank == 0:
        print("predicted", len(scores))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
