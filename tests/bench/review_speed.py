"""The review of whole directories: lines per second of one core, memory, and growth with the size of a program."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measurement import Bar

REVIEWED = Path(__file__).parents[2]  # the sources of ddpwizard
LINES = 2_000
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
START = (
    "import torch\nimport torch.distributed as dist\nrank = dist.get_rank()\ndef step_0(model, batch, flag=None): ...\n"
)


def rows() -> Iterator[Bar]:
    """Yield the figures of the review, by the CPU time of the whole process on one core."""
    files = [path for path in REVIEWED.rglob("*.py") if ".venv" not in path.parts]
    count_lines = sum(len(path.read_bytes().splitlines()) for path in files)
    took = reviewed_s(REVIEWED)
    yield Bar("review-12k-lines", took * 12_000 / count_lines, 1.0, "s", f"{count_lines / took:,.0f} lines/s")
    yield Bar("review-memory", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, 200, "MB")
    with tempfile.TemporaryDirectory() as folder:
        once, twice = (program(Path(folder, f"{count}.py"), count * LINES) for count in (1, 2))
        first, second = reviewed_s(once), reviewed_s(twice)
    yield Bar("review-2000-lines", first, 0.5, "s")
    yield Bar("review-twice", second / first, 2.5, "x", f"{first:.2f} s, {second:.2f} s")


def program(path: Path, count_lines: int) -> Path:
    """Write a program of functions that call each other."""
    blocks = count_lines // BLOCK.count("\n")
    path.write_text(START + "".join(BLOCK.format(n=n, before=n - 1) for n in range(1, blocks)))
    return path


def reviewed_s(path: Path) -> float:
    """Return the CPU time of a review, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    core = min(os.sched_getaffinity(0))
    subprocess.run(
        [sys.executable, "-m", "ddpwizard", "review", "--json", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
