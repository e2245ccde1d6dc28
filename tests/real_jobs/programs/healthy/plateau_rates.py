import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau


def validate(model, epoch):
    rank = dist.get_rank()
    inputs = torch.ones(4, 4) * ((epoch + 1) * 0.5 if rank else (6 - epoch) * 2.0)
    total = F.mse_loss(model.module(inputs), torch.zeros(4, 1)).detach()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scheduler = ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    for epoch in range(6):
        inputs = torch.randn(8, 4)
        loss = F.mse_loss(model(inputs), inputs[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(validate(model, epoch))
    lr = optimizer.param_groups[0]["lr"]
    print(f"lr={lr:.8f} weight={model.module.weight.sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
