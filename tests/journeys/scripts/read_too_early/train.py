"""Rank 0 prepares the vocabulary, every rank reads it."""

import json
import time
from pathlib import Path

import torch
import torch.distributed as dist

VOCABULARY = Path("vocabulary.json")


def prepare():
    words = [f"word{n}" for n in range(1000)]
    time.sleep(2)
    VOCABULARY.write_text(json.dumps(words))


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        prepare()
    words = json.loads(VOCABULARY.read_text())
    counts = torch.zeros(len(words))
    dist.all_reduce(counts)
    print("done", len(words), flush=True)
    dist.destroy_process_group()


main()
