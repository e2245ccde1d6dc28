"""Scripts on two ranks over gloo, of one node or two, under torchrun, and as plain ``python``."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ddpwizard.app.system.subprocesses import ProcessOutcome, run_process
from helpers.fork_server import fork_server

LIMIT_S = 150
START = """\
import datetime
import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

distributed = "RANK" in os.environ
if distributed:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=int(os.environ.get("WAIT_S", "90"))))
rank = dist.get_rank() if distributed else 0
world_size = dist.get_world_size() if distributed else 1
"""
# A DDP model that outlives its process group sometimes aborts the interpreter at its end.
END = """
net = model = None
gc.collect()
if distributed:
    dist.destroy_process_group()
"""


class ForkedRun(NamedTuple):
    code: int
    log: str


def run(
    command: Sequence[str], directory: Path, wait_s: int = 90, limit_s: int = LIMIT_S, **environ: str
) -> ProcessOutcome:
    """Run a command; a collective of the script fails after ``wait_s``."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "WAIT_S": str(wait_s), **environ}
    return asyncio.run(run_process(command, limit_s=limit_s, env=env, cwd=directory))


def plain(directory: Path) -> ForkedRun:
    """Run the script as plain ``python`` does."""
    return _run_forked(directory, 0, 90)


def on_two_ranks(directory: Path, wait_s: int = 90) -> ForkedRun:
    """Run the script on two ranks."""
    return _run_forked(directory, 2, wait_s)


def torchrun(directory: Path) -> ProcessOutcome:
    """Run the script on two ranks of torchrun."""
    return run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"], directory
    )


def two_nodes(directory: Path, wait_s: int = 90) -> ForkedRun:
    """Run the script on two nodes of one rank each, both on this machine."""
    return _run_forked(directory, 2, wait_s, nodes=2)


def _run_forked(directory: Path, ranks: int, wait_s: int, nodes: int = 1) -> ForkedRun:
    log = directory / "output.log"
    log.write_text("")
    server = fork_server()
    server.start(directory / "train.py", ranks=ranks, nodes=nodes, log=log, limit_s=LIMIT_S, WAIT_S=str(wait_s))
    return ForkedRun(server.wait(), log.read_text())
