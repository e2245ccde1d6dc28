"""Digits on all GPUs of one process by nn.DataParallel."""

import os

import torch
import torch.nn as nn
from digits import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0,1")


def build_model():
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def main():
    torch.manual_seed(42)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

    pixels, digits = load_digits()
    full = TensorDataset(pixels, digits)
    train_data, val_data = random_split(full, [1600, 197], generator=torch.Generator().manual_seed(42))
    train_loader = DataLoader(train_data, batch_size=80, shuffle=True, num_workers=0, pin_memory=False)
    val_loader = DataLoader(val_data, batch_size=64, shuffle=False)

    model = build_model()
    model = nn.DataParallel(model)
    model = model.to(device)

    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    n_iter = 0
    for epoch in range(2):
        model.train()
        running_loss = 0.0
        for i, data in enumerate(train_loader, 0):
            inputs, labels = data[0].to(device), data[1].to(device)
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            print("step %d loss %r" % (n_iter, loss.item()))
            n_iter += 1
        print("epoch %d mean %.5f" % (epoch, running_loss / len(train_loader)))

        model.eval()
        total, correct = 0, 0
        with torch.no_grad():
            for data in val_loader:
                images, labels = data[0].to(device), data[1].to(device)
                outputs = model(images)
                _, predicted = torch.max(outputs.data, 1)
                total += labels.size(0)
                correct += (predicted == labels).sum().item()
        print("epoch %d accuracy %.6f" % (epoch, correct / total))

    torch.save(model.module.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
