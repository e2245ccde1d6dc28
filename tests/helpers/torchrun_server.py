"""Scripts, and jobs of torchrun, as forks of a process that has imported torch.

An exception is printed as by an interpreter of its own, and the rank ends with its code. Jobs may run at the same time:
each has a connection of its own.
"""

import atexit
import gc
import importlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from helpers.fork_server import run_script
from helpers.forked_ranks import run_agent

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
IMPORTED = ("helpers.run_on_two_ranks", "torch.distributed.run")
# What the scripts of a plan import as well; each takes most of a second.
IMPORTED += ("torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.optim")
POLL_S = 0.05
NUMBERS = itertools.count()  # of the files with the output of jobs


class Ended(NamedTuple):
    """A job that has ended: its exit code, and the output of all its processes."""

    code: int
    log: str


def run_torchrun(
    options: Sequence[str],
    script: Path,
    arguments: Sequence[str] = (),
    *,
    directory: Path,
    limit_s: float,
    environ: Mapping[str, str],
) -> Ended:
    """Run ``torchrun OPTIONS SCRIPT ARGUMENTS`` in a directory, with this environment.

    Raises:
        TimeoutError: It has not ended after the limit; it is ended then.
    """
    return _run("torchrun", [*TORCHRUN, *options, str(script), *arguments], directory, limit_s, environ)


@contextmanager
def torchrun_running(command: Sequence[str], *, directory: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Run a command that begins as ``TORCHRUN``, and yield the file with its output; at the end it is ended.

    Where the kernel can do it, ``/proc`` shows its processes as those of interpreters of their own.
    """
    log, connection = _start("torchrun", command, directory, environ)
    with connection:
        yield log


def run_python(
    script: Path, arguments: Sequence[str] = (), *, directory: Path, limit_s: float, environ: Mapping[str, str]
) -> Ended:
    """Run ``python SCRIPT ARGUMENTS``, as ``run_torchrun`` does."""
    return _run("python", [str(script), *arguments], directory, limit_s, environ)


def run_programs(arguments: Sequence[str], directory: Path, limit_s: float) -> dict[str, list[int]]:
    """Run ``run_on_two_ranks.py ARGUMENTS`` and return the exit codes of the ranks of each program."""
    script = Path(__file__).with_name("run_on_two_ranks.py")
    ended = run_python(script, arguments, directory=directory, limit_s=limit_s, environ=os.environ)
    assert ended.code == 0, ended.log
    return json.loads(ended.log)


def _run(program: str, command: Sequence[str], directory: Path, limit_s: float, environ: Mapping[str, str]) -> Ended:
    log, connection = _start(program, command, directory, environ)
    with connection:
        connection.settimeout(limit_s)
        code = int(connection.recv(16))
    return Ended(code, log.read_text(errors="replace"))


def _start(
    program: str, command: Sequence[str], directory: Path, environ: Mapping[str, str]
) -> tuple[Path, socket.socket]:
    """Start a job; its exit code comes over the connection, and closing the connection ends the job."""
    log = directory / f"{program}-{next(NUMBERS)}.log"
    job = {"program": program, "command": command, "directory": str(directory), "log": str(log)}
    connection = socket.create_connection(("127.0.0.1", _port()))
    connection.sendall(json.dumps(job | {"environ": dict(environ)}).encode() + b"\n")
    return log, connection


@cache
def _port() -> int:
    """Start the server of this process and return its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, __file__, str(listener.fileno())]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
        server = subprocess.Popen(command, stdin=subprocess.PIPE, env=env, pass_fds=[listener.fileno()])
        port = int(listener.getsockname()[1])

    def close() -> None:
        assert server.stdin
        server.stdin.close()
        server.wait(30)

    atexit.register(close)
    return port


def serve(listener: socket.socket) -> dict[str, Any] | None:
    """Start the jobs that are requested. Return each in its process; None at the end of the standard input."""
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([0, listener, *running.values()], [], [], POLL_S)
        if 0 in ready:
            for pid in running:
                os.kill(pid, signal.SIGTERM)
            return None
        if listener in ready:
            connection, _ = listener.accept()
            with connection.makefile() as lines:
                job = json.loads(lines.readline())
            pid = os.fork()
            if not pid:
                for each in (listener, connection, *running.values()):
                    each.close()
                return job
            running[pid] = connection
        for pid, connection in [*running.items()]:
            if connection in ready:  # nobody waits for it any more
                os.kill(pid, signal.SIGTERM)
            ended, status = os.waitpid(pid, 0 if connection in ready else os.WNOHANG)
            if ended:
                with suppress(OSError):
                    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                running.pop(pid).close()


def become(job: dict[str, Any]) -> int:
    """Run the script, or the agent of torchrun, in this process and return its exit code."""
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(job["directory"])
    os.environ.clear()
    os.environ.update(job["environ"])
    atexit._clear()
    from torch._C._distributed_c10d import set_debug_level_from_env

    set_debug_level_from_env()  # which torch reads when it is imported
    if job["program"] == "torchrun":
        return run_agent(job["command"])
    sys.argv = job["command"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    return run_script(Path(sys.argv[0]))


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    requested = serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(become(requested) if requested else 0)
