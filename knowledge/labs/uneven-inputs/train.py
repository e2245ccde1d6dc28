"""Train on the records of two hospitals; the records of a hospital stay with its process."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

RECORDS = [72, 104]


def load_site(rank):
    generator = torch.Generator().manual_seed(rank)
    features = torch.randn(RECORDS[rank], 6, generator=generator)
    outcome = (features[:, 0] > features[:, 1]).float().unsqueeze(1)
    return TensorDataset(features, outcome)


def train_epoch(model, loader, optimizer):
    total = 0.0
    for features, outcome in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(features), outcome)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    loader = DataLoader(load_site(rank), batch_size=8, shuffle=True)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        loss = train_epoch(model, loader, optimizer)
        print(f"hospital {rank}, epoch {epoch}: loss {loss:.3f}")
        dist.barrier()

    records = torch.tensor(len(loader.dataset))
    dist.all_reduce(records)
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    of_ranks = [torch.empty_like(weights) for _ in RECORDS]
    dist.all_gather(of_ranks, weights)
    if rank == 0:
        torch.save(model.module.state_dict(), "both_hospitals.pt")
        difference = (of_ranks[0] - of_ranks[1]).abs().max().item()
        print(f"training ended with {records} records, the weights of the hospitals differ by {difference:.4f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
