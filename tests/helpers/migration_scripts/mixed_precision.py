"""Regression with autocast and a gradient scaler, both only on GPUs; a dictionary as batch; early stopping."""

import contextlib
import os

import torch
import torch.nn as nn
from torch.utils import data

cfg = dict(batch_size=32, epochs=3, lr=1e-2, patience=2)


class Waves(data.Dataset):
    def __init__(self, count: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.rand(count, 6, generator=generator)
        self.y = torch.sin(self.x @ torch.arange(1.0, 7.0)) + 0.1 * self.x.sum(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, idx):
        return {"inputs": self.x[idx], "target": self.y[idx]}


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, inputs):
        return self.net(inputs).squeeze(-1)


def run_validation(model, loader, device):
    model.eval()
    squares, n = 0.0, 0
    with torch.no_grad():
        for batch in loader:
            error = model(batch["inputs"].to(device)) - batch["target"].to(device)
            squares += (error**2).sum().item()
            n += error.numel()
    model.train()
    return squares / n


if __name__ == "__main__":
    torch.manual_seed(5)
    use_cuda = torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")

    train_loader = data.DataLoader(Waves(352, 1), batch_size=cfg["batch_size"], shuffle=True, drop_last=True)
    val_loader = data.DataLoader(Waves(101, 2), batch_size=cfg["batch_size"])

    model = Regressor()
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
    scaler = torch.amp.GradScaler(device.type, enabled=use_cuda)
    loss_fn = nn.MSELoss()

    best, bad_epochs, step = float("inf"), 0, 0
    for epoch in range(cfg["epochs"]):
        for batch in train_loader:
            inputs = batch["inputs"].to(device, non_blocking=True)
            target = batch["target"].to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=torch.float16) if use_cuda else contextlib.nullcontext():
                loss = loss_fn(model(inputs), target)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
            scaler.step(optimizer)
            scaler.update()
            print(f"step {step} loss {loss.item()!r}", flush=True)
            step += 1
        scheduler.step()

        val_loss = run_validation(model, val_loader, device)
        print(f"epoch {epoch} valid {val_loss:.6f} lr {scheduler.get_last_lr()[0]:.6f}")
        if val_loss < best:
            best, bad_epochs = val_loss, 0
            os.makedirs("checkpoints", exist_ok=True)
            torch.save(model.state_dict(), os.path.join("checkpoints", "best.pt"))
        else:
            bad_epochs += 1
            if bad_epochs > cfg["patience"]:
                print("stopping early")
                break

    torch.save(model.state_dict(), "model.pt")
