"""Start scripts as forks of a process that has imported torch: one process, or ranks with the variables of torchrun.

To import torch takes two seconds of CPU in each process of a job. For tests of what a script does, not of its launcher.
One job at a time: a line with a job starts it, an empty line ends it, and its exit code is written when it has ended.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from io import FileIO
from pathlib import Path
from typing import Any

ENDED, TIMED_OUT = -1, -2  # codes of a job that was ended, or ran too long


class ForkServer:
    """The process that starts the jobs; it ends with its standard input."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def start(
        self,
        script: Path,
        arguments: Sequence[str] = (),
        *,
        ranks: int,
        nodes: int = 1,
        log: Path,
        limit_s: float,
        **environ: str,
    ) -> None:
        """Start a script in its directory, output to ``log``; ``ranks=0``: without the variables of a launcher.

        The ranks have the variables of as many ``nodes``, all of them on this machine.
        """
        job = {"script": str(script), "arguments": list(arguments), "ranks": ranks, "nodes": nodes, "log": str(log)}
        self._write(json.dumps(job | {"limit_s": limit_s, "environ": environ}))

    def wait(self) -> int:
        """Return the exit code of the job: that of its first process to fail, else 0."""
        assert self._process.stdout
        return int(self._process.stdout.readline())

    def end(self) -> None:
        """End the job and wait for it."""
        self._write("")
        self.wait()

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _write(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


@cache
def fork_server() -> ForkServer:
    """Return the server of this process."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def serve(requests: FileIO) -> Path:
    """Start the jobs that are requested. Return in each process of a job with its script."""
    while line := requests.readline():
        if not line.strip():  # the job had ended already
            continue
        job = json.loads(line)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        pids: list[int] = []
        for rank in range(max(job["ranks"], 1)):
            pid = os.fork()
            if not pid:
                return _become(job, rank, port)
            pids.append(pid)
        print(_wait(pids, requests, time.monotonic() + job["limit_s"]), flush=True)
    sys.exit(0)


def _become(job: dict[str, Any], rank: int, port: int) -> Path:
    """Make this process one of the job."""
    script, ranks = Path(job["script"]), job["ranks"]
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(script.parent)
    os.environ |= job["environ"]
    if ranks:
        of_node = ranks // job["nodes"]
        os.environ |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        os.environ |= {"LOCAL_RANK": str(rank % of_node), "LOCAL_WORLD_SIZE": str(of_node)}
        os.environ |= {"GROUP_RANK": str(rank // of_node), "GROUP_WORLD_SIZE": str(job["nodes"])}
        os.environ |= {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}
    sys.argv = [str(script), *job["arguments"]]
    sys.path[0] = str(script.parent)
    return script


def _wait(pids: list[int], requests: FileIO, end_s: float) -> int:
    """Return the code of the job; where a process fails the others are ended, as torchrun does."""
    code, left = 0, set(pids)
    while left:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            left.remove(pid)
            code = code or os.waitstatus_to_exitcode(status)
        elif select.select([requests], [], [], 0.02)[0]:
            requests.readline()
            code = code or ENDED
        elif time.monotonic() > end_s:
            code = code or TIMED_OUT
        if code:
            for each in left:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
    return code


def run_script(script: Path) -> int:
    """Run a script as ``python`` does and return its exit code."""
    from helpers.run_on_two_ranks import keep_process_groups  # imports torch, which only a process with ranks needs

    keep_process_groups()
    return run_function(partial(runpy.run_path, str(script), run_name="__main__"), of=str(script))


def run_function(function: Callable[[], object], of: str = "") -> int:
    """Call a function as ``python`` runs a script, and return the exit code. Tracebacks begin in the file ``of``."""
    code = 0
    try:
        function()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if code and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    except BaseException as error:
        code, trace = 1, error.__traceback__
        while trace and of and trace.tb_frame.f_code.co_filename != of:
            trace = trace.tb_next
        sys.excepthook(type(error), error, trace or error.__traceback__)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    importlib.import_module("helpers.run_on_two_ranks")
    gc.freeze()
    with open(0, "rb", buffering=0, closefd=False) as standard_input:  # unbuffered, so that select sees each line
        started = serve(standard_input)
    os._exit(run_script(started))  # to take all of torch down would cost more than most scripts
