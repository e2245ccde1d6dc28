"""Click-through model; every worker reads its own day of logs, days differ in size."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

FIELDS = [50, 20, 10]


class CTR(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(n, dim) for n in FIELDS)
        self.mlp = nn.Sequential(nn.Linear(dim * len(FIELDS), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, ids):
        h = torch.cat([e(ids[:, i]) for i, e in enumerate(self.emb)], 1)
        return self.mlp(h).squeeze(1)


def read_day(day, batch_size=64):
    rows = 640 + 256 * day
    g = torch.Generator().manual_seed(day)
    ids = torch.stack([torch.randint(0, n, (rows,), generator=g) for n in FIELDS], 1)
    clicks = ((ids[:, 0] + ids[:, 1]) % 3 == 0).float()
    for s in range(0, rows, batch_size):
        yield ids[s : s + batch_size], clicks[s : s + batch_size]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(CTR())
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)

    seen = torch.zeros(1)
    with Join([model]):
        for step, (ids, clicks) in enumerate(read_day(rank)):
            opt.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids), clicks)
            loss.backward()
            opt.step()
            seen += len(clicks)
            if step % 2 == 0:
                avg = loss.detach().clone()
                dist.all_reduce(avg)
                if rank == 0:
                    print(f"step {step} loss {avg.item() / world:.4f}", flush=True)

    dist.all_reduce(seen)
    if rank == 0:
        print(f"rows seen {int(seen.item())}", flush=True)
        torch.save(model.module.state_dict(), "ctr.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
