"""Findings in a module that only the scripts that use it show, and look-alikes that are right."""

from pathlib import Path

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import KNOWLEDGE

MAIN = """\
import torch
import torch.distributed as dist
from parts import {name}

def main():
    dist.init_process_group("gloo")
    {body}

if __name__ == "__main__":
    main()
"""
SHARD = """\
import zlib

def shard(names, rank, world):
    return [name for name in names if {place} % world == rank]
"""
REDUCE = """\
import torch
import torch.distributed as dist

def reduce_all(values):
    for name in values:
        total = torch.tensor(float(values[name]))
        dist.all_reduce(total)
        values[name] = total.item()
"""
COUNT = """counts = {first}
    for label in torch.randn(4).add(dist.get_rank()).tolist():
        counts[int(label)] = counts.get(int(label), 0) + 1
    reduce_all(counts)"""
CACHE = """\
import os
import torch
import torch.distributed as dist

def cached(folder, rank):
    path = os.path.join(folder, "features.pt")
    if not os.path.exists(path):
        if rank == 0:
            torch.save(torch.ones(1), path)
        {inside}
    {behind}
    return torch.load(path)
"""
OF_CACHE = 'print(cached("out", dist.get_rank()))'
# Of a case: the function that the script imports, what it does with it, and the module.
Case = tuple[str, str, str]
WRONG: dict[str, tuple[Case, tuple[str, int]]] = {
    "hashes that share out": (
        ("shard", 'shard(["a", "b"], dist.get_rank(), dist.get_world_size())', SHARD.format(place="hash(name)")),
        ("DW414", 4),
    ),
    "names that data of a rank decide": (("reduce_all", COUNT.format(first="{}"), REDUCE), ("DW405", 5)),
    "a barrier of those that find no file": (
        ("cached", OF_CACHE, CACHE.format(inside="dist.barrier()", behind="pass")),
        ("DW406", 7),
    ),
}
RIGHT: dict[str, Case] = {
    "checksums that share out": (
        "shard",
        'shard(["a", "b"], dist.get_rank(), dist.get_world_size())',
        SHARD.format(place="zlib.crc32(name.encode())"),
    ),
    "hashes that are not for ranks": ("shard", 'shard(["a", "b"], 0, 7)', SHARD.format(place="hash(name)")),
    "all names at the start": ("reduce_all", COUNT.format(first="{name: 0 for name in range(4)}"), REDUCE),
    "names that are written out": ("reduce_all", COUNT.format(first="{0: 0, 1: 0}"), REDUCE),
    "a barrier for all": ("cached", OF_CACHE, CACHE.format(inside="pass", behind="dist.barrier()")),
}


def findings(case: Case, folder: Path) -> list[tuple[str, int]]:
    """Return the rules and lines of the errors and warnings in the module of a case."""
    name, body, text = case
    (folder / "train.py").write_text(MAIN.format(name=name, body=body))
    module = folder / "parts.py"
    module.write_text(text)
    found = review_text(text, str(module), KNOWLEDGE)
    return [(each.rule, each.line) for each in found if each.severity != "info"]


@pytest.mark.parametrize("name", WRONG)
def test_finding_of_what_a_script_passes(name: str, tmp_path: Path) -> None:
    case, finding = WRONG[name]
    assert findings(case, tmp_path) == [finding]


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_where_all_is_right(name: str, tmp_path: Path) -> None:
    assert findings(RIGHT[name], tmp_path) == []
