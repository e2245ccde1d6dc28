"""Corpus and vocabulary files."""

import json
import time
from pathlib import Path

TEXT = ["the loss went down", "the gradient is averaged", "each rank has a shard", "the shard is a file"] * 8


def build_vocabulary(path):
    """Count the words of the corpus and write the vocabulary; takes a while on the full corpus."""
    words = sorted({word for line in TEXT for word in line.split()})
    time.sleep(1.0)
    Path(path).write_text(json.dumps({word: i for i, word in enumerate(words)}))


def load_vocabulary(path):
    return json.loads(Path(path).read_text())


def encode(vocabulary, line):
    return [vocabulary[word] for word in line.split()]
