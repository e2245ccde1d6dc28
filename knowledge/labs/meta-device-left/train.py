"""Build a large model without memory for it, then put it on the device of the process."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Network(nn.Module):
    def __init__(self, width=256, depth=4):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1)

    def forward(self, points):
        return self.head(self.norm(self.blocks(self.embed(points))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = torch.device("cpu")
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Network()
    model.to(device)
    model = DDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    torch.manual_seed(1 + rank)
    for step in range(20):
        points = torch.randn(32, 8, device=device)
        loss = nn.functional.mse_loss(model(points), points.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
