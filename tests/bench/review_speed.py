"""The review of whole directories: lines per second, memory, a second core, and growth with the size of a program."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from measurement import Bar

REVIEWED = ("accelerate", "deepspeed")  # installed libraries that communicate between ranks, about 800 files
LINES = 2_000
RUNS = 3
START = "import torch\nimport torch.distributed as dist\nrank = dist.get_rank()\n"
BLOCK = """\
def step_{n}(model, batch, flag=None):
    loss = model(batch).sum()
    if flag:
        loss = step_{before}(model, batch, None) if rank == 0 else loss * 2
    for part in range(3):
        loss = loss + part
    if loss.item() > {n}:
        print(rank, loss)
    return loss
"""
RECURSION = """\
def walk_{n}(depth):
    if depth > {n}:
        return walk_{other}(depth - 1)
    below = walk_{n}(depth + 1)
    if rank == 0:
        print(below)
    return below
"""
DEEP = """\
def level_{n}(value):
    if rank == {n}:
        value = value + {n}
    return level_{after}(value)
"""


class Took(NamedTuple):
    """The time of a review, in seconds."""

    cpu_s: float
    wall_s: float


def rows() -> Iterator[Bar]:
    """Yield the figures of the review, by the CPU time of the whole process on one core."""
    review(Path(__file__))  # which writes what the reviews of one installation share
    directories = [Path(spec.origin).parent for name in REVIEWED if (spec := find_spec(name)) and spec.origin]
    files = [path for directory in directories for path in directory.rglob("*.py")]
    count_lines = sum(len(path.read_bytes().splitlines()) for path in files)
    one = review(*directories)
    peer = f"{count_lines / one.cpu_s:,.0f} lines/s, {len(files):,} files"
    yield Bar("review-12k-lines", one.cpu_s * 12_000 / count_lines, 1.0, "s", peer)
    yield Bar("review-memory", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, 200, "MB")
    if len(os.sched_getaffinity(0)) > 1:
        two = review(*directories, cores=2)
        peer = f"{one.wall_s / two.wall_s:.2f} times as fast as on one"
        yield Bar("review-two-cores", two.wall_s / one.wall_s, 1 / 1.7, "x", peer)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        yield Bar("review-2000-lines", reviewed_s(path, calls(LINES // BLOCK.count("\n"))), 0.5, "s")
        start_s = reviewed_s(path, "")
        for name, (program, size) in SHAPES.items():
            first, second = (reviewed_s(path, program(count)) for count in (size, 2 * size))
            peer = f"{first:.2f} s, {second:.2f} s, of which {start_s:.2f} s to start"
            yield Bar(f"review-twice-{name}", (second - start_s) / (first - start_s), 2.5, "x", peer)


def calls(count: int) -> str:
    """Return a program of functions that each call the one before."""
    blocks = "".join(BLOCK.format(n=n, before=n - 1) for n in range(1, count))
    return f"{START}def step_0(model, batch, flag=None): ...\n{blocks}"


def recursion(count: int) -> str:
    """Return a program of functions that call themselves and each other."""
    return START + "".join(RECURSION.format(n=n, other=(7 * n + 3) % count) for n in range(count)) + "walk_0(3)\n"


def deep_calls(count: int) -> str:
    """Return a program in which each function calls the next."""
    blocks = "".join(DEEP.format(n=n, after=n + 1) for n in range(count))
    return f"{START}{blocks}def level_{count}(value):\n    dist.barrier()\nlevel_0(1)\n"


def mutual_assignment(count: int) -> str:
    """Return a program in which the variables of a loop are computed from each other."""
    lines = [f"    a{n}, b{n} = b{n - 1} + 1, a{n - 1} * rank\n" for n in range(1, count)]
    return f"{START}a0, b0 = rank, 1\nfor step in range(10):\n{''.join(lines)}    a0, b0 = b{count - 1}, a{count - 1}\n"


def elifs(count: int) -> str:
    """Return a program with a chain of conditions."""
    chain = "".join(f"elif kind == {n}:\n    print({n})\n" for n in range(count))
    return f"{START}kind = input()\nif rank == 0:\n    dist.barrier()\n{chain}"


def alternatives(count: int) -> str:
    """Return a program with a chain of conditions and a collective in each branch."""
    chain = "".join(f"elif kind == {n}:\n    dist.barrier()\n" for n in range(count))
    return f"{START}kind = input()\nif not kind:\n    dist.barrier()\n{chain}else:\n    dist.barrier()\n"


def sends(count: int) -> str:
    """Return a program of messages between two ranks."""
    return f"{START}t = torch.ones(1)\n" + "if rank == 0:\n    dist.send(t, 1)\nelse:\n    dist.recv(t, 0)\n" * count


SHAPES: dict[str, tuple[Callable[[int], str], int]] = {
    "calls": (calls, 444),
    "recursion": (recursion, 600),
    "deep": (deep_calls, 1_000),
    "assigned": (mutual_assignment, 4_000),
    "elif": (elifs, 1_500),
    "alternatives": (alternatives, 1_000),
    "messages": (sends, 500),
}


def reviewed_s(path: Path, program: str) -> float:
    """Return the CPU time of the review of a program, in seconds: the least of some runs."""
    path.write_text(program)
    return min(review(path).cpu_s for _ in range(RUNS))


def review(*paths: Path, cores: int = 1) -> Took:
    """Return the time that a review takes on this number of cores."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "ddpwizard", "review", "--json", *map(str, paths)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environ,  # with the bytecode that the first review has written, as in an installation
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s)
