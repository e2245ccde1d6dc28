"""A perceptron on digits: one function, evaluation after each epoch."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from digits import load_digits
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 64
EPOCHS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 48)
        self.fc2 = nn.Linear(48, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


def main():
    torch.manual_seed(0)
    pixels, digits = load_digits()
    train_set = TensorDataset(pixels[:1408], digits[:1408])
    test_set = TensorDataset(pixels[1408:], digits[1408:])
    train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=100)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    step = 0
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item()!r}")
            step += 1

        model.eval()
        correct = 0
        with torch.no_grad():
            for x, y in test_loader:
                correct += (model(x).argmax(dim=1) == y).sum().item()
        print(f"epoch {epoch} accuracy {correct / len(test_set):.6f}")

    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
