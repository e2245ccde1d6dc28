"""A character model with attention on the text of a module of the standard library."""
import argparse as source_of_text
import math
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

context, width, heads, layers = 32, 32, 4, 2
batch_size = 16
steps = 24
device = 'cuda' if torch.cuda.is_available() else 'cpu'


class CharDataset(Dataset):
    def __init__(self, text):
        chars = sorted(set(text))
        self.vocab_size = len(chars)
        index = {c: i for i, c in enumerate(chars)}
        self.data = torch.tensor([index[c] for c in text])

    def __len__(self):
        return (len(self.data) - 1) // context

    def __getitem__(self, i):
        chunk = self.data[i * context : i * context + context + 1]
        return chunk[:-1], chunk[1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
        att = q @ k.transpose(-2, -1) / math.sqrt(width // heads)
        mask = torch.triu(torch.full(att.shape[-2:], float('-inf'), device=x.device), diagonal=1)
        y = (torch.softmax(att + mask, dim=-1) @ v).transpose(1, 2).flatten(2)
        x = x + self.proj(y)
        return x + self.mlp(self.ln2(x))


class CharModel(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block() for _ in range(layers)])
        self.head = nn.Linear(width, vocab_size)

    def forward(self, idx, targets=None):
        x = self.tokens(idx) + self.positions(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        if targets is None:
            return logits, None
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


torch.manual_seed(1337)
dataset = CharDataset(Path(source_of_text.__file__).read_text()[:16000])
loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
model = CharModel(dataset.vocab_size).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
print(sum(p.numel() for p in model.parameters()), 'parameters')

step = 0
while step < steps:
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        _, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f'step {step}: loss {loss.item()!r}')
        step += 1
        if step == steps:
            break

torch.save(model.state_dict(), 'model.pt')
