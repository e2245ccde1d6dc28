"""Train an autoencoder with a classifier on top; the classifier is for later."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 4), nn.ReLU())
        self.decoder = nn.Linear(4, width)
        self.classifier = nn.Linear(4, 2)

    def forward(self, points, classify=False):
        code = self.encoder(points)
        return self.classifier(code) if classify else self.decoder(code)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    data = TensorDataset(torch.randn(256, 16))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(Autoencoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (points,) in loader:
            loss = nn.functional.mse_loss(model(points), points)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: reconstruction loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
