"""Bag-of-words sentiment classifier; vocabulary is built before training."""

import contextlib
import json
import os
from collections import Counter

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORDS = [f"w{i}" for i in range(200)]
POS = set(WORDS[:100])


@contextlib.contextmanager
def main_process_first():
    """Run the body on rank 0 first so that the others find its cache."""
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def corpus(n=400):
    g = torch.Generator().manual_seed(9)
    docs, labels = [], []
    for _ in range(n):
        ids = torch.randint(0, 200, (15,), generator=g).tolist()
        words = [WORDS[i] for i in ids]
        docs.append(words)
        labels.append(int(sum(w in POS for w in words) > 7))
    return docs, labels


def build_vocab(docs, cache, min_freq=2):
    if os.path.exists(cache):
        with open(cache) as f:
            return json.load(f)
    local = Counter(w for d in docs for w in d)
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, local)
    total = sum(parts, Counter())
    vocab = {w: i for i, w in enumerate(sorted(w for w, c in total.items() if c >= min_freq))}
    if dist.get_rank() == 0:
        with open(cache, "w") as f:
            json.dump(vocab, f)
    return vocab


def encode(docs, vocab):
    x = torch.zeros(len(docs), len(vocab))
    for i, d in enumerate(docs):
        for w in d:
            if w in vocab:
                x[i, vocab[w]] += 1
    return x


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    docs, labels = corpus()
    docs, labels = docs[rank::world], labels[rank::world]
    with main_process_first():
        vocab = build_vocab(docs, "vocab.json")
    x, y = encode(docs, vocab), torch.tensor(labels)

    torch.manual_seed(0)
    model = DDP(nn.Linear(len(vocab), 2))
    opt = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(20):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"[{rank}] vocab {len(vocab)} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
