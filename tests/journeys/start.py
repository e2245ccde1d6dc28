"""Start the job of a journey as its user did, and leave it as the user finds it: hung, or ended with a log."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from helpers.hang_cases import Hang
from helpers.hang_jobs import standing
from helpers.jobs import RunningJob, running, wait_for
from journey import Crash

SCRIPTS = Path(__file__).parent / "scripts"
PROGRAMS = Path(sys.executable).parent
LOG = "train.log"
CRASH_LIMIT_S = 120.0


def user_environment(home: Path) -> dict[str, str]:
    """Return the environment of the user's shell: a home of its own, the programs of this interpreter on the PATH."""
    home.mkdir()
    directories = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    return {"HOME": str(home), "PATH": path, "OMP_NUM_THREADS": "1", **{name: str(home / name) for name in directories}}


@contextmanager
def failed(job: Hang | Crash, directory: Path, environ: Mapping[str, str]) -> Iterator[RunningJob | None]:
    """Start a job in a directory and wait until it hangs or has ended; yield the earlier job, if it has one."""
    if isinstance(job, Hang):
        with standing(job, directory):
            yield None
        return
    shutil.copytree(SCRIPTS / job.directory, directory, dirs_exist_ok=True)
    with _earlier_job(job.earlier, directory) if job.earlier else nullcontext() as earlier:
        with (directory / LOG).open("w") as log:
            ended = subprocess.run(
                shlex.split(job.command),
                cwd=directory,
                env={**os.environ, **environ},
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=CRASH_LIMIT_S,
                check=False,
            )
        assert ended.returncode, f"{job.command} did not fail"
        yield earlier


@contextmanager
def _earlier_job(command: str, directory: Path) -> Iterator[RunningJob]:
    """A job that still trains."""
    program, *rest = shlex.split(command)
    script = next(word for word in rest if word.endswith(".py"))
    words = [str(PROGRAMS / "python"), *([] if program == "python" else [str(PROGRAMS / program)]), *rest]
    with running(words, directory / script, directory, OMP_NUM_THREADS="1") as job:
        wait_for(lambda: job.printed("trains"), "the earlier job trains")
        yield job


def end_job(job: RunningJob) -> None:
    """End a job as its user would, with SIGTERM to what was started, and wait until nothing is left of it."""
    os.kill(job.pid, signal.SIGTERM)
    wait_for(lambda: not job.processes(), "the earlier job has ended")
