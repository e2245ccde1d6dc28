import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


class Autoencoder(nn.Module):
    def __init__(self, d=12, k=4):
        super().__init__()
        self.encoder = nn.Linear(d, k)
        self.decoder = nn.Linear(k, d)

    def forward(self, x):
        z = torch.tanh(self.encoder(x))
        return self.decoder(z), z


class Trainer:
    def __init__(self, net, dataset, lr=0.05, batch_size=16):
        self.net = net
        self.model = DDP(net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=batch_size, sampler=self.sampler)

    def loss(self, x):
        rebuilt, z = self.net(x)
        return nn.functional.mse_loss(rebuilt, x) + 1e-3 * z.pow(2).mean()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            self.net.train()
            for (x,) in self.loader:
                self.optimizer.zero_grad()
                loss = self.loss(x)
                loss.backward()
                self.optimizer.step()
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: {loss.item():.4f}")

    @torch.no_grad()
    def features(self, x):
        self.net.eval()
        return self.net(x)[1]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(128, 4) @ torch.randn(4, 12)
    trainer = Trainer(Autoencoder(), TensorDataset(x))
    trainer.fit(epochs=4)
    if dist.get_rank() == 0:
        torch.save(trainer.features(x), "features.pt")
        torch.save(trainer.net.state_dict(), "autoencoder.pt")
    dist.barrier()
    dist.destroy_process_group()
    return trainer


if __name__ == "__main__":
    trainer = main()
