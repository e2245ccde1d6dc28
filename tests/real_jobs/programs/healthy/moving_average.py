import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Ema:
    def __init__(self, model, decay=0.95):
        self.copy = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.copy.parameters(), model.parameters()):
            mine.lerp_(theirs, 1 - self.decay)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1234 + dist.get_rank())
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    model = DDP(net)
    ema = Ema(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(10):
        inputs = torch.randn(16, 8)
        loss = (model(inputs) - inputs.mean(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model.module)
    print(f"ema={sum(p.sum() for p in ema.copy.parameters()).item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
