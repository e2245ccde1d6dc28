"""Single processes that block at a known place."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ddpwizard.app.jobs import discover
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.system import supervisor
from helpers.jobs import wait_for
from helpers.pseudo_terminal import rests

HEAD = "import os, sys, time, threading, subprocess\ndef up():\n    os.write(int(sys.argv[1]), b'up')\n"


@contextmanager
def still(
    code: str, directory: Path, *, under: Sequence[str] = (), out: IO[bytes] | None = None, **environ: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that runs ``code`` from ``directory/still.py``, has called ``up()`` and rests; it and all it
    started are killed at the end."""
    script = directory / "still.py"
    script.write_text(HEAD + code)
    read, write = os.pipe()
    process = subprocess.Popen(
        [*under, sys.executable, str(script), str(write)],
        pass_fds=[write],
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        stdout=out or subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=directory,
    )
    os.close(write)
    try:
        assert os.read(read, 2) == b"up"
        wait_for(lambda: _all_rest(process.pid), "it rests")
        yield process
    finally:
        os.close(read)
        for pid in [*supervisor.descendants(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()


def _all_rest(pid: int) -> bool:
    """Return whether the process and all its descendants are idle."""
    return all(map(rests, [pid, *supervisor.descendants(pid)]))


def alone(pid: int) -> Process:
    """A process as the one rank of a job."""
    return job_of(pid).processes[0]


def job_of(pid: int) -> Job:
    """The job of a process."""
    (job,) = discover.job_of_pid(pid)
    return job
