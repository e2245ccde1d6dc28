"""A Trainer that is given everything, in the style of PyTorch's tutorial for one GPU."""

import argparse

import torch
import torch.nn.functional as F
from digits import load_digits
from torch.utils.data import DataLoader, Dataset


class DigitsDataset(Dataset):
    def __init__(self, size):
        pixels, digits = load_digits()
        self.data = list(zip(pixels[:size], digits[:size]))
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.data[index]


class Trainer:
    def __init__(
        self,
        model: torch.nn.Module,
        train_data: DataLoader,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        save_every: int,
    ) -> None:
        self.device = device
        self.model = model.to(device)
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.steps = 0

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.cross_entropy(output, targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        b_sz = len(next(iter(self.train_data))[0])
        print(f"Epoch {epoch} | Batchsize: {b_sz} | Steps: {len(self.train_data)}")
        for source, targets in self.train_data:
            source = source.to(self.device)
            targets = targets.to(self.device)
            loss = self._run_batch(source, targets)
            print(f"step {self.steps} loss {loss!r}")
            self.steps += 1

    def _save_checkpoint(self, epoch):
        ckp = self.model.state_dict()
        PATH = "checkpoint.pt"
        torch.save(ckp, PATH)
        print(f"Epoch {epoch} | Training checkpoint saved at {PATH}")

    def train(self, max_epochs: int):
        for epoch in range(max_epochs):
            self._run_epoch(epoch)
            if epoch % self.save_every == 0:
                self._save_checkpoint(epoch)


def load_train_objs():
    train_set = DigitsDataset(1536)  # load your dataset
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    return train_set, model, optimizer


def prepare_dataloader(dataset: Dataset, batch_size: int):
    return DataLoader(dataset, batch_size=batch_size, pin_memory=False, shuffle=True)


def main(device, total_epochs, save_every, batch_size):
    torch.manual_seed(0)
    dataset, model, optimizer = load_train_objs()
    train_data = prepare_dataloader(dataset, batch_size)
    trainer = Trainer(model, train_data, optimizer, device, save_every)
    trainer.train(total_epochs)
    torch.save(trainer.model.state_dict(), "model.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="simple distributed training job")
    parser.add_argument("--total_epochs", default=2, type=int, help="Total epochs to train the model")
    parser.add_argument("--save_every", default=1, type=int, help="How often to save a snapshot")
    parser.add_argument("--batch_size", default=96, type=int, help="Input batch size (default: 96)")
    args = parser.parse_args()

    main(torch.device("cuda" if torch.cuda.is_available() else "cpu"), args.total_epochs, args.save_every, args.batch_size)
