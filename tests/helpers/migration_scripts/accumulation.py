"""A character model: gradients of four batches per step, clipped, with warm-up and a learning rate per step."""

import textwrap as source_of_text
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

SEED = 3
SEQUENCE = 24
BATCH_SIZE = 8
ACCUMULATION_STEPS = 4
EPOCHS = 3
MAX_GRAD_NORM = 0.5


class GRUModel(nn.Module):
    def __init__(self, vocabulary, hidden=40):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 16)
        self.gru = nn.GRU(16, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocabulary)

    def forward(self, tokens):
        states, _ = self.gru(self.embed(tokens))
        return self.out(states)


def get_data():
    text = Path(source_of_text.__file__).read_text()
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(c) for c in text])
    rows = codes[: 256 * (SEQUENCE + 1)].view(256, SEQUENCE + 1)
    return TensorDataset(rows[:, :-1].contiguous(), rows[:, 1:].contiguous()), len(alphabet)


def train():
    torch.manual_seed(SEED)
    dataset, vocabulary = get_data()
    dataloader = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    model = GRUModel(vocabulary).to(device)
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 5))

    global_step = 0
    accumulated = 0.0
    optimizer.zero_grad()
    for epoch in range(EPOCHS):
        for i, (tokens, targets) in enumerate(dataloader):
            tokens = tokens.to(device)
            targets = targets.to(device)
            logits = model(tokens)
            loss = loss_fn(logits.transpose(1, 2), targets)
            loss = loss / ACCUMULATION_STEPS
            loss.backward()
            accumulated += loss.item()

            if (i + 1) % ACCUMULATION_STEPS == 0:
                clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                print(f"step={global_step} loss={accumulated!r}")
                global_step += 1
                accumulated = 0.0

    return model


if __name__ == "__main__":
    trained = train()
    torch.save(trained.state_dict(), "model.pt")
