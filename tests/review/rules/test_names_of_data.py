"""Mappings whose names are data of each rank, which ranks go through with collectives, and those of common names."""

import pytest
from helpers.review_snippets import found

METER = """
from collections import Counter, defaultdict

class Meter:
    def __init__(self):
        self.sums = {}

    def add(self, **given):
        for name, value in given.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def reduce(self):
        for name in ORDER:
            t = torch.tensor(self.sums[name])
            dist.all_reduce(t)

dist.init_process_group("gloo")
rank = dist.get_rank()
generator = torch.Generator().manual_seed(rank)
meter = Meter()
for _ in range(4):
    task = ["seg", "det"][torch.randint(0, 2, (1,), generator=generator).item()]
    ADD
meter.reduce()
"""
COUNTS = """
from collections import Counter
dist.init_process_group("gloo")
rank = dist.get_rank()
words = WORDS
counts = Counter(words)
for word in sorted(counts):
    t = torch.tensor(counts[word])
    dist.all_reduce(t)
"""
ORDER = """
dist.init_process_group("gloo")
tasks = ["small", "large"]
if WHO:
    tasks.reverse()
sums = {}
for name in tasks:
    sums[name] = 1.0
for name in sums:
    dist.all_reduce(torch.tensor(sums[name]))
"""
FOUND = {
    "named arguments": METER.replace("ADD", "meter.add(**{task: 1.0})").replace("ORDER", "self.sums"),
    "words of a rank": COUNTS.replace("WORDS", '["a b a", "c"][rank].split()'),
    "a list that one rank turns": ORDER.replace("WHO", "dist.get_rank() == 1"),
}
HEALTHY = {
    "common names": METER.replace("ADD", "meter.add(loss=1.0, count=2.0)").replace("ORDER", "self.sums"),
    "names that are written out": METER.replace("ADD", 'meter.add(**{"n": 1.0})').replace("ORDER", "self.sums"),
    "names of all ranks": METER.replace("ADD", "meter.add(**{task: 1.0})").replace("ORDER", '("seg", "det")'),
    "words of all ranks": COUNTS.replace("WORDS", '"a b a c".split()'),
    "a list that all ranks turn": ORDER.replace("WHO", "world > 3").replace("tasks =", "world = 2\ntasks ="),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert len(found(code, "DW405")) == 1


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert found(code, "DW405") == []


def test_types_on_the_sides_of_a_condition_on_data() -> None:
    code = """
dist.init_process_group("gloo")
values = [[0.5, 1.5], []][dist.get_rank()]
if values:
    stats = torch.tensor([sum(values) / len(values), float(len(values))])
else:
    stats = torch.tensor(EMPTY)
dist.all_reduce(stats)
"""
    assert len(found(code.replace("EMPTY", "[0, 0]"), "DW441")) == 1
    assert found(code.replace("EMPTY", "[0.0, 0.0]"), "DW441") == []
    assert found(code.replace("EMPTY", "[0, 0], dtype=torch.float32"), "DW441") == []
