import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())

    def forward(self, x):
        return self.layers(x)


class FineTuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


def wrap(net):
    return DDP(net)


def train(model, steps, lr, seed):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=lr)
    g = torch.Generator().manual_seed(seed * 100 + dist.get_rank())
    for _ in range(steps):
        x = torch.randn(16, 8, generator=g)
        y = (x[:, 0] * x[:, 1] > 0).long()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = FineTuned()

    # stage 1: the head only
    set_trainable(net.backbone, False)
    model = wrap(net)
    loss = train(model, steps=10, lr=0.1, seed=1)
    if dist.get_rank() == 0:
        print("head:", loss)

    # stage 2: everything
    set_trainable(net.backbone, True)
    loss = train(model, steps=20, lr=0.05, seed=2)
    if dist.get_rank() == 0:
        print("all:", loss)
        torch.save(net.state_dict(), "finetuned.pt")
    dist.barrier()
    dist.destroy_process_group()
    return net


if __name__ == "__main__":
    model = main()
