"""Sentiment classifier with an embedding for each word of the training reviews."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

REVIEWS = [
    ("a warm and funny film", 1),
    ("dull plot and dull acting", 0),
    ("the cast is wonderful", 1),
    ("i left after ten minutes", 0),
    ("funny from start to end", 1),
    ("a waste of time", 0),
    ("warm wonderful and smart", 1),
    ("the plot makes no sense at all", 0),
]


class Vocabulary:
    def __init__(self, words):
        self.index = {word: i for i, word in enumerate(sorted(words), start=1)}

    def __len__(self):
        return len(self.index) + 1

    def encode(self, text):
        return torch.tensor([self.index.get(word, 0) for word in text.split()])


class BagOfWords(nn.Module):
    def __init__(self, n_words, width=8):
        super().__init__()
        self.embedding = nn.Embedding(n_words, width)
        self.classify = nn.Linear(width, 2)

    def forward(self, ids):
        return self.classify(self.embedding(ids).mean(dim=0, keepdim=True))


def words_of(reviews):
    return {word for text, _ in reviews for word in text.split()}


def main():
    dist.init_process_group("gloo")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    reviews = REVIEWS[rank::world_size]
    vocabulary = Vocabulary(words_of(reviews))
    print(f"rank {rank}: {len(vocabulary)} words", flush=True)
    torch.manual_seed(0)
    model = DDP(BagOfWords(len(vocabulary)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(4):
        total = 0.0
        for text, label in reviews:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(vocabulary.encode(text)), torch.tensor([label]))
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"epoch {epoch} loss {total / len(reviews):.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
