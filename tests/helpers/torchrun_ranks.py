"""Find the ranks that a test's own process has started through torchrun, and put faults into them from outside."""

import asyncio
from pathlib import Path

import psutil


def rank_pids(script: str) -> dict[int, int]:
    """Rank to pid of every process below ours that runs ``script`` as a rank."""
    found: dict[int, int] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            if script in process.cmdline() and "torch.distributed.run" not in process.cmdline():
                found[int(process.environ()["RANK"])] = process.pid
        except (psutil.Error, KeyError, ValueError):
            continue
    return found


async def ranks_started(script: str, ranks: int, limit_s: float = 60) -> dict[int, int]:
    """Wait until that many ranks run."""
    for _ in range(int(limit_s / 0.02)):
        if len(found := rank_pids(script)) == ranks:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"only {rank_pids(script)} started")


async def no_rank_left(script: str, limit_s: float) -> None:
    """Wait until no rank runs any more."""
    for _ in range(int(limit_s / 0.02)):
        if not rank_pids(script):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{rank_pids(script)} still run after {limit_s} s")


def fault(directory: Path, rank: int, call: int, code: str) -> dict[str, str]:
    """The environment in which that rank runs ``code`` in front of its all-reduce number ``call`` (from 1).

    Python imports ``sitecustomize`` by itself; ``tensor`` and ``real`` (the true all-reduce) are there for the code.
    """
    (directory / "sitecustomize.py").write_text(
        f"""
import os, signal
if os.environ.get("RANK") == "{rank}":
    import torch.distributed as dist
    real = dist.all_reduce
    calls = 0

    def all_reduce(tensor, *args, **kwargs):
        global calls
        calls += 1
        if calls == {call}:
            {code}
        return real(tensor, *args, **kwargs)

    dist.all_reduce = all_reduce
"""
    )
    return {"PYTHONPATH": str(directory)}
