"""Fine-tune a model that starts from pretrained weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

PRETRAINED = "pretrained.pt"


def make_model():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def make_data(samples, seed):
    points = torch.randn(samples, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(points, points.square().sum(dim=1, keepdim=True).sqrt())


def pretrain():
    """Replaces the download of weights."""
    net = make_model()
    points, targets = make_data(512, seed=1).tensors
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(100):
        loss = nn.functional.mse_loss(net(points), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(net.state_dict(), PRETRAINED)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    if rank == 0:
        pretrain()
    dist.barrier()

    model = DDP(make_model())
    if rank == 0:
        model.module.load_state_dict(torch.load(PRETRAINED))
        print("loaded the pretrained weights")

    data = make_data(256, seed=2)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = 0.0
        for points, targets in loader:
            loss = nn.functional.mse_loss(model(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
        losses = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, torch.tensor([total]))
        if rank == 0:
            print(f"epoch {epoch}: mean loss of each rank " + " ".join(f"{each.item():.2f}" for each in losses))
            ratio = max(losses).item() / min(losses).item()
            print(f"epoch {epoch}: the worst rank has {ratio:.1f} times the loss of the best one")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
