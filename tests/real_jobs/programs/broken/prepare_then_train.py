import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DATA = Path("cache")
EPOCHS = 3
BATCH = 8


def is_main():
    return dist.get_rank() == 0


def build_cache(path):
    """Tokenise the corpus once and keep it on disk."""
    path.mkdir(exist_ok=True)
    g = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, 50, (96, 12), generator=g)
    labels = (tokens.float().mean(1) > 24.5).long()
    torch.save({"tokens": tokens, "labels": labels}, path / "train.pt")


def prepare_data():
    if is_main():
        print("building the cache")
        build_cache(DATA)
        dist.barrier()
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, 50, (96, 12), generator=generator)
    if is_main():
        stored = torch.load(DATA / "train.pt")
        assert torch.equal(stored["tokens"], tokens)
    return TensorDataset(tokens, (tokens.float().mean(1) > 24.5).long())


class BagOfWords(nn.Module):
    def __init__(self, vocab=50, dim=16, classes=2):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim)
        self.fc = nn.Linear(dim, classes)

    def forward(self, tokens):
        return self.fc(self.emb(tokens))


def train(dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(BagOfWords())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for tokens, labels in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(tokens), labels)
            loss.backward()
            opt.step()
            total += loss.detach()
        dist.all_reduce(total)
        if is_main():
            print("epoch", epoch, "loss", total.item() / (len(loader) * dist.get_world_size()))
    return model


if __name__ == "__main__":
    dist.init_process_group(backend="gloo")
    torch.manual_seed(1234)
    data = prepare_data()
    net = train(data)
    if is_main():
        torch.save(net.module.state_dict(), "final.pt")
    dist.destroy_process_group()
