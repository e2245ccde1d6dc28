"""Tokenise the corpus for a vocabulary on rank 0, then train a bag-of-words model on all ranks."""

import collections
import datetime
import json
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


BLOCK = 1000  # documents that the archive delivers at once
BLOCK_S = 0.5


def documents(count):
    """Read documents from the archive, which is slow."""
    source = random.Random(1)
    for number in range(count):
        if number % BLOCK == BLOCK - 1:
            time.sleep(BLOCK_S)
        yield " ".join(str(source.randrange(5000)) for _ in range(120))


def build_vocabulary(path, count):
    counted = collections.Counter()
    for number, document in enumerate(documents(count)):
        counted.update(document.split())
        if number % BLOCK == 0:
            print(f"Tokenizing: {number}/{count} documents")
    with open(path, "w") as file:
        words = [word for word, _ in counted.most_common(2000)]
        json.dump({"documents": number + 1, "words": words}, file)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    if rank == 0:
        build_vocabulary("vocabulary.json", 8_000)
    dist.barrier()

    with open("vocabulary.json") as file:
        vocabulary = json.load(file)
    index = {word: number for number, word in enumerate(vocabulary["words"])}
    model = DDP(nn.Linear(len(index), 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, document in enumerate(list(documents(16))[rank::world_size]):
        words = document.split()
        counts = torch.zeros(1, len(index))
        for word in words:
            if word in index:
                counts[0, index[word]] += 1
        label = torch.tensor([int(words[0]) % 2])
        loss = nn.functional.cross_entropy(model(counts), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"trained with {len(index)} words of {vocabulary['documents']} documents, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
