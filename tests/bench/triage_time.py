"""From ``ddpwizard triage --pid`` to the verdict on a hung job of eight gloo ranks, on two cores, the whole process."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from helpers.jobs import launched, triage_until
from measurement import Bar

RANKS = 8
CORES = 2
LIMIT_S = 5.0
RUNS = 3
# A verdict that is sure after two samples, and one that stays open and is sampled a third time.
SCRIPTS = {"triage-8-ranks": "metrics.py", "triage-8-ranks-open": "pairs.py"}


def rows() -> Iterator[Bar]:
    """The measured figures, the worst of some runs each; job and wizard share the cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:CORES])
    try:
        for name, script in SCRIPTS.items():
            yield Bar(name, max(_seconds(script)), LIMIT_S, "s", f"the whole process, worst of {RUNS}, {CORES} cores")
    finally:
        os.sched_setaffinity(0, cores)


def _seconds(script: str) -> Iterator[float]:
    command = [str(Path(sys.executable).with_name("ddpwizard")), "triage", "--json", "--pid"]
    with tempfile.TemporaryDirectory() as folder, launched(script, Path(folder), RANKS) as job:
        triage_until(job.pid, "hung")
        for _ in range(RUNS):
            began = time.perf_counter()
            done = subprocess.run([*command, str(job.pid)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            yield time.perf_counter() - began
            if done.returncode != 1:
                raise SystemExit(f"triage of {script} ended with {done.returncode}, not 1")


if __name__ == "__main__":
    for row in rows():
        print(*row)
