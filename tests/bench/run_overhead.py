"""Overhead of ``ddpwizard run`` for a small DDP job: the step time of a job started with it relative to the same job
started without.

Both jobs are alive at the same time and take turns of a few steps, so that other load affects both equally.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measurement import Bar

OVERHEAD_PERCENT = 1.0
RANKS = 2
TURNS, WARM_TURNS = 60, 5
STEPS = 12  # in one turn; the first one wakes the other rank and does not count
LIMIT_S = 300


class Job:
    """A job that makes some steps on request and reports the time of one."""

    def __init__(self, before: list[str], directory: Path) -> None:
        directory.mkdir()
        self._go, self._took = directory / "go", directory / "took"
        os.mkfifo(self._go)
        os.mkfifo(self._took)
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
        self.process = subprocess.Popen(
            [*before, *launch, __file__, str(self._go), str(self._took)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def turn(self) -> float:
        """The median of the steps of one turn."""
        self._go.write_text("go\n")
        return float(self._took.read_text())

    def end(self) -> None:
        self._go.write_text("end\n")
        if self.process.wait(LIMIT_S):
            raise SystemExit(f"the job ended with code {self.process.returncode}")


def rows(turns: int = TURNS) -> Iterator[Bar]:
    """The measured figure."""
    with tempfile.TemporaryDirectory() as directory:
        wizard = [sys.executable, "-m", "ddpwizard", "run", "--"]
        plain, within = Job([], Path(directory, "plain")), Job(wizard, Path(directory, "within"))
        pairs: list[tuple[float, float]] = []
        for turn in range(WARM_TURNS + turns):
            first, second = (plain, within) if turn % 2 else (within, plain)
            took = {first: first.turn(), second: second.turn()}
            if turn >= WARM_TURNS:
                pairs.append((took[within], took[plain]))
        plain.end()
        within.end()
    ours, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
    percent = 100 * (statistics.median(a / b for a, b in pairs) - 1)
    peer = f"{ours * 1e3:.2f} ms a step, {theirs * 1e3:.2f} ms without, {RANKS} ranks, {turns} turns each"
    yield Bar("run-overhead", max(0.0, percent), OVERHEAD_PERCENT, "%", peer)


def _train(go: Path, took: Path) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(256, 256)
    while True:
        going = torch.tensor([float(dist.get_rank() == 0 and go.read_text() == "go\n")])
        dist.broadcast(going, 0)
        if not going.item():
            break
        steps: list[float] = []
        for step in range(STEPS):
            began = time.perf_counter()
            optimizer.zero_grad()
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            steps.append(time.perf_counter() - began)
            if dist.get_rank() == 0 and step == 0:
                print(f"loss {loss.item():.4f}", flush=True)
        if dist.get_rank() == 0:
            took.write_text(str(statistics.median(steps[1:])))
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:]:
        _train(*(Path(path) for path in sys.argv[1:]))
    else:
        for row in rows():
            print(row)
