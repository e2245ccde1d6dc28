import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self, d_in=10, d_out=6, temperature=0.2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_in, 24), nn.ReLU(), nn.Linear(24, d_out))
        self.temperature = temperature

    def embed(self, x):
        return F.normalize(self.net(x), dim=-1)

    def forward(self, a, b):
        return self.embed(a) @ self.embed(b).T / self.temperature


def train(model, rank, steps=30):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    g = torch.Generator().manual_seed(40 + rank)
    for step in range(steps):
        base = torch.randn(16, 10, generator=g)
        view1 = base + 0.1 * torch.randn(16, 10, generator=g)
        view2 = base + 0.1 * torch.randn(16, 10, generator=g)
        loss = F.cross_entropy(model(view1, view2), torch.arange(16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(step, loss.item())


@torch.no_grad()
def retrieval_accuracy(model, n=32):
    model.eval()
    g = torch.Generator().manual_seed(9)
    base = torch.randn(n, 10, generator=g)
    queries = model.embed(base)
    keys = model.embed(base + 0.1 * torch.randn(n, 10, generator=g))
    hits = (queries @ keys.T).argmax(1) == torch.arange(n)
    model.train()
    return hits.float().mean()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    encoder = Encoder()
    model = DDP(encoder)
    train(model, rank)
    accuracy = retrieval_accuracy(model)
    dist.all_reduce(accuracy)
    if rank == 0:
        print("accuracy", accuracy.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
