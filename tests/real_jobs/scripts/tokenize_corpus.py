"""Builds the vocabulary once, then trains on it."""

import collections
import itertools
import random
import re

import torch
import torch.distributed as dist

WORDS = ["lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit"]


def corpus(lines):
    rng = random.Random(0)
    for _ in range(lines):
        yield " ".join(rng.choices(WORDS, k=40))


def merge_pairs(counts, lines):
    pairs = collections.Counter()
    for line in corpus(lines):
        for word in re.findall(r"\w+", line):
            counts[word] += 1
            pairs.update(itertools.pairwise(word))
    return pairs


def build_vocabulary(path_lines=40_000_000):
    counts = collections.Counter()
    pairs = merge_pairs(counts, path_lines)
    return [*counts, *map("".join, pairs)]


def main():
    dist.init_process_group("gloo")
    vocabulary = []
    print("ready", flush=True)
    if dist.get_rank() == 0:
        vocabulary = build_vocabulary()
    dist.barrier()  # PEERS
    box = [vocabulary]
    dist.broadcast_object_list(box, src=0)
    embedding = torch.nn.Embedding(len(box[0]), 8)
    print(embedding)


if __name__ == "__main__":
    main()
