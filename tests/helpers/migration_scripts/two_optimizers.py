"""A small GAN on digits: two models, two optimizers."""

import torch
from digits import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
pixels, digits = load_digits()
loader = DataLoader(TensorDataset(pixels[:1280]), batch_size=64, shuffle=True)
netG = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())
netD = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
criterion = nn.BCEWithLogitsLoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))

step = 0
for epoch in range(2):
    for (real,) in loader:
        netD.zero_grad()
        fake = netG(torch.randn(len(real), 16))
        loss_real = criterion(netD(real), torch.ones(len(real), 1))
        loss_fake = criterion(netD(fake.detach()), torch.zeros(len(real), 1))
        loss_d = loss_real + loss_fake
        loss_d.backward()
        optimizerD.step()

        netG.zero_grad()
        loss_g = criterion(netD(fake), torch.ones(len(real), 1))
        loss_g.backward()
        optimizerG.step()
        print(f"step {step} loss {loss_d.item() + loss_g.item()!r}")
        step += 1

torch.save({"G": netG.state_dict(), "D": netD.state_dict()}, "model.pt")
