"""Run programs on two ranks over gloo, several at a time: torch is imported once, and each rank is a fork.

Usage: run_on_two_ranks.py DIRECTORY [PLAIN…]; each .py file below it is a program; those named after it are run by one
process without the variables of a launcher. Prints a JSON object: file name, exit codes.
A rank that has not ended after LIMIT_S hangs: it is killed, and its code is -9.
"""

import json
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Collection
from pathlib import Path

import torch._dynamo  # what DistributedDataParallel imports when it is made
import torch.distributed

LIMIT_S = 60
AT_A_TIME = 5
WORLD_SIZE = 2


def start(script: Path, rank: int, port: int | None) -> int:
    """Start one rank of a program and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        folder = script.parent / script.stem
        folder.mkdir(exist_ok=True)
        os.chdir(folder)
        log = os.open(f"{rank}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if port is not None:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        sys.path[0], sys.argv = str(script.parent), [str(script)]
        torch.set_num_threads(1)
        runpy.run_path(str(script), run_name="__main__")
        sys.stdout.flush()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def start_program(script: Path, plain: bool = False) -> list[int]:
    """Start both ranks of a program, or one process."""
    if plain:
        return [start(script, 0, None)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return [start(script, rank, port) for rank in range(WORLD_SIZE)]


def run(scripts: list[Path], plain: Collection[str]) -> dict[str, list[int]]:
    """Return the exit codes of both ranks of each program; of one process for those that are ``plain``."""
    waiting, codes = scripts[::-1], {script.name: [0] * WORLD_SIZE for script in scripts}
    running: dict[int, tuple[str, int, float]] = {}
    while waiting or running:
        if waiting and len(running) <= (AT_A_TIME - 1) * WORLD_SIZE:
            script = waiting.pop()
            for rank, pid in enumerate(start_program(script, script.name in plain)):
                running[pid] = (script.name, rank, time.monotonic() + LIMIT_S)
            continue
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            name, rank, _ = running.pop(pid)
            codes[name][rank] = os.waitstatus_to_exitcode(status)
            continue
        for pid, (_, _, end) in running.items():
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return codes


if __name__ == "__main__":
    print(json.dumps(run(sorted(Path(sys.argv[1]).glob("*.py")), sys.argv[2:])))
