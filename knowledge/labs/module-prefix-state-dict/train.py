"""Train a classifier on several processes, then score the saved weights on held-out data."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WEIGHTS = "classifier.pt"


def make_model():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))


def make_data(samples, seed):
    points = torch.randn(samples, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(points, (points[:, :4].sum(dim=1) > 0).long())


def train(model, data, epochs=3):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for points, labels in loader:
            loss = nn.functional.cross_entropy(model(points), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")


@torch.no_grad()
def score():
    """Return the accuracy of the saved weights, as the service that uses them would have it."""
    net = make_model()
    net.load_state_dict(torch.load(WEIGHTS))
    points, labels = make_data(128, seed=2).tensors
    return (net(points).argmax(dim=1) == labels).float().mean().item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(make_model())
    train(model, make_data(512, seed=1))

    if dist.get_rank() == 0:
        torch.save(model.state_dict(), WEIGHTS)
    dist.barrier()
    accuracy = score()
    if dist.get_rank() == 0:
        print(f"accuracy of the saved weights: {accuracy:.2f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
