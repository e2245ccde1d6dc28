"""Find the examples with the largest loss and write them to a file."""

import heapq
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset


class Questions(Dataset):
    def __init__(self, n=60):
        g = torch.Generator().manual_seed(8)
        self.x = torch.randn(n, 4, generator=g)
        self.y = torch.randint(0, 3, (n,), generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


@torch.no_grad()
def losses_of(model, dataset, indices):
    for i in indices:
        x, y = dataset[i]
        yield nn.functional.cross_entropy(model(x).unsqueeze(0), y.unsqueeze(0)).item(), i


def collect(hardest, rank, world_size):
    """Return the examples of all ranks on rank 0, and nothing elsewhere."""
    collected = [None] * world_size if rank == 0 else None
    dist.gather_object(hardest, collected, dst=0)
    return [item for part in collected for item in part] if rank == 0 else []


def main(top=5):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(4, 3).eval()
    dataset = Questions()
    hardest = heapq.nlargest(top, losses_of(model, dataset, range(rank, len(dataset), world_size)))
    everything = collect(hardest, rank, world_size)
    if rank == 0:
        rows = [{"index": i, "loss": loss} for loss, i in heapq.nlargest(top, everything)]
        Path("hardest.json").write_text(json.dumps(rows, indent=2))
        print(f"wrote {len(rows)} of {len(everything)} examples")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
