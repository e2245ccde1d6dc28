"""Score a test set on all ranks and compute the rank correlation of all predictions on the first."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

N_TEST = 51


def make_test_set():
    g = torch.Generator().manual_seed(4)
    x = torch.randn(N_TEST, 3, generator=g)
    return TensorDataset(x, x @ torch.tensor([0.5, 1.0, -1.0]))


def spearman(a, b):
    ra, rb = a.argsort().argsort().double(), b.argsort().argsort().double()
    return torch.corrcoef(torch.stack([ra, rb]))[0, 1].item()


@torch.no_grad()
def predict(model, loader):
    scores, targets = [], []
    for x, y in loader:
        scores.append(model(x).squeeze(1))
        targets.append(y)
    return torch.cat(scores), torch.cat(targets)


def gather_all(tensor):
    """Concatenate the tensors of all ranks."""
    world_size = dist.get_world_size()
    parts = [torch.zeros_like(tensor) for _ in range(world_size)]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
    test_set = make_test_set()
    share = Subset(test_set, range(rank, len(test_set), world_size))
    scores, targets = predict(model, DataLoader(share, batch_size=8))
    all_scores, all_targets = gather_all(scores), gather_all(targets)
    if rank == 0:
        print(f"{len(all_scores)} predictions, correlation {spearman(all_scores, all_targets):.6f}")
    dist.barrier()
    dist.destroy_process_group()
    return model, test_set


if __name__ == "__main__":
    scorer, data = main()
