import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

SITE_SIZES = {0: 72, 1: 104}


def load_site(rank):
    """Each hospital keeps its own records: one rank a site."""
    n = SITE_SIZES[rank % len(SITE_SIZES)]
    g = torch.Generator().manual_seed(rank)
    features = torch.randn(n, 6, generator=g)
    outcome = (features[:, 0] - features[:, 1] > 0).float().unsqueeze(1)
    return TensorDataset(features, outcome)


def run_epoch(model, loader, criterion, optimizer):
    running = 0.0
    for features, outcome in loader:
        optimizer.zero_grad()
        loss = criterion(model(features), outcome)
        loss.backward()
        optimizer.step()
        running += loss.item()
    return running / len(loader)


def main(epochs=3, batch_size=8, lr=0.1):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    dataset = load_site(rank)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    for epoch in range(epochs):
        loss = run_epoch(model, loader, criterion, optimizer)
        print(f"[site {rank}] epoch {epoch}: {loss:.4f}", flush=True)
        dist.barrier()

    if rank == 0:
        torch.save(model.module.state_dict(), "federated.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
