"""A Trainer that builds everything from a configuration, with validation and the best weights."""

import dataclasses
import random

import numpy as np
import torch
from digits import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


@dataclasses.dataclass
class Config:
    hidden: int = 40
    depth: int = 3
    batch_size: int = 60
    epochs: int = 2
    lr: float = 3e-3
    grad_clip: float = 1.0
    seed: int = 11


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(self.norm(x)))


class Classifier(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.stem = nn.Linear(64, config.hidden)
        self.layers = nn.Sequential(*[Layer(config.hidden) for _ in range(config.depth)])
        self.head = nn.Linear(config.hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.stem(x)))


class Trainer:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = Classifier(config).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        self.scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
        self.criterion = nn.CrossEntropyLoss()
        self.global_step = 0
        self.best_accuracy = 0.0
        self.history: list[float] = []

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, labels = (each.to(self.device) for each in batch)
        return self.criterion(self.model(inputs), labels)

    @torch.no_grad()
    def validate(self, loader: DataLoader) -> float:
        self.model.eval()
        hits = seen = 0
        for inputs, labels in loader:
            inputs, labels = inputs.to(self.device), labels.to(self.device)
            hits += int((self.model(inputs).argmax(-1) == labels).sum())
            seen += len(labels)
        return hits / seen

    def fit(self, train_loader: DataLoader, valid_loader: DataLoader) -> None:
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.optimizer, T_max=self.config.epochs * len(train_loader)
        )
        for epoch in range(self.config.epochs):
            self.model.train()
            for batch in train_loader:
                loss = self.training_step(batch)
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
                self.optimizer.step()
                self.scheduler.step()
                self.history.append(loss.item())
                print(f"step {self.global_step} loss {self.history[-1]!r}")
                self.global_step += 1

            accuracy = self.validate(valid_loader)
            print(f"epoch {epoch}: accuracy {accuracy:.6f}")
            if accuracy > self.best_accuracy:
                self.best_accuracy = accuracy
                torch.save(self.model.state_dict(), "best.pt")


def main() -> None:
    config = Config()
    seed_everything(config.seed)
    pixels, digits = load_digits()
    train_loader = DataLoader(
        TensorDataset(pixels[:1200], digits[:1200]),
        batch_size=config.batch_size,
        shuffle=True,
    )
    valid_loader = DataLoader(TensorDataset(pixels[1200:], digits[1200:]), batch_size=256)
    trainer = Trainer(config)
    trainer.fit(train_loader, valid_loader)
    torch.save(trainer.model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
