"""Statistics that a program computes of sums over the samples of a rank, with those of all ranks."""

from pathlib import Path

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import IMPORTS, KNOWLEDGE, lines

START = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
rows = torch.arange(64.0).reshape(16, 4)
mine = rows[rank::world]
model = DDP(nn.Linear(4, 1))
"""
SCALED = (
    START
    + """
class Scaler:
    def fit(self, x):
        n, s, ss = COUNT, x.sum(0), x.pow(2).sum(0)
        SHARED
        self.mean = s / n
        self.std = (ss / n - self.mean**2).sqrt()
        return self
    def transform(self, x):
        return (x - self.mean) / self.std
model(Scaler().fit(DATA).transform(mine)).sum().backward()
"""
)
RUNNING = (
    START
    + """
class Running:
    def __init__(self):
        self.mean, self.var, self.count = torch.zeros(4), torch.ones(4), 1e-4
    def update(self, x):
        total, n = x.sum(0), len(x)
        SHARED
        delta = total / n - self.mean
        self.mean = self.mean + delta * n / (self.count + n)
        self.count = self.count + n
    def __call__(self, x):
        return (x - self.mean) / self.var.sqrt()
running = Running()
for x in mine.split(2):
    running.update(x)
    model(running(x)).sum().backward()
"""
)
NORM = """
import torch
import torch.distributed as dist

class Running:
    def __init__(self):
        self.mean, self.var = torch.zeros(4), torch.ones(4)
    def update(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
    def __call__(self, x):
        return (x - self.mean) / self.var.sqrt()
"""
MAIN = """
from norm import Running
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
def main():
    dist.init_process_group("gloo")
    model, running = DDP(nn.Linear(4, 1)), Running()
    for x in torch.ones(3, 2, 4):
        running.update(x)
        model(running(x)).sum().backward()
START
"""


def scaled(count: str = "len(x)", shared: str = "pass", data: str = "mine") -> str:
    return SCALED.replace("COUNT", count).replace("SHARED", shared).replace("DATA", data)


FOUND = {
    "a sum by a length": scaled(),
    "a sum by a shape": scaled("x.shape[0]"),
    "a sum by a tensor": scaled("torch.tensor([float(len(x))])"),
    "a sum by a size": scaled("x.size(0)"),
    "a running mean": RUNNING.replace("SHARED", "pass"),
}
HEALTHY = {
    "sums of all ranks": scaled("torch.tensor([len(x)])", "for v in (n, s, ss):\n            dist.all_reduce(v)"),
    "a helper for all ranks": scaled("torch.tensor([len(x)])", "n, s, ss = reduce_all(n, s, ss)"),
    "all of the data": scaled(data="rows"),
    "a running mean of all ranks": RUNNING.replace("SHARED", "dist.all_reduce(total)"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert lines(code, "DW251")


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert lines(code, "DW251") == []


@pytest.mark.parametrize("start", ["main()", 'if __name__ == "__main__":\n    main()'])
def test_module_of_a_script(tmp_path: Path, start: str) -> None:
    (tmp_path / "main.py").write_text(IMPORTS + MAIN.replace("START", start))
    (tmp_path / "norm.py").write_text(NORM)
    found = review_text(NORM, str(tmp_path / "norm.py"), KNOWLEDGE, ["DW251"])
    assert [each.line for each in found] == [9]


def test_module_of_no_script(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(IMPORTS + MAIN.replace("START", ""))
    (tmp_path / "norm.py").write_text(NORM)
    assert review_text(NORM, str(tmp_path / "norm.py"), KNOWLEDGE, ["DW251"]) == []
