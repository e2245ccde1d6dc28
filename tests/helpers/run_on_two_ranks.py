"""Run programs on two ranks, or four, over gloo, several at a time: torch is imported once, and each rank is a fork.

Usage: run_on_two_ranks.py [OPTIONS] DIRECTORY [PLAIN…]; each .py file in it is a program, and so is each folder with a
main.py; those named after it are run by one process without the variables of a launcher. Prints a JSON object: path in
the directory, exit codes. A rank that has not ended after the limit hangs: it is killed, and its code is -9; one that
has not ended AFTER_FAILURE_S after the other failed is killed too, as torchrun does.
With a file of checks, the function of it that is named as the program is called on each rank with the globals of the
program when it has ended; the code is CHECK_FAILED when it raises AssertionError.
"""

import argparse
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch._dynamo  # what DistributedDataParallel imports when it is made
import torch.distributed
from torch.distributed import distributed_c10d

AFTER_FAILURE_S = 3
CHECK_FAILED = 3


def keep_process_groups() -> None:
    """Hold each process group that the program destroys until the process ends.

    In torch 2.13 a model of DistributedDataParallel that is freed after destroy_process_group frees the gloo group: it
    holds the GIL and joins a thread that may wait for it, and one rank in 20 never ends on a loaded machine.
    """
    kept: list[object] = []
    destroy = torch.distributed.destroy_process_group

    def keep_and_destroy(*args: Any, **options: Any) -> None:
        kept.extend(distributed_c10d._world.pg_map)  # pyright: ignore[reportPrivateUsage]
        destroy(*args, **options)

    torch.distributed.destroy_process_group = keep_and_destroy


def check_of(script: Path, checks: Path | None) -> Callable[[dict[str, Any]], None] | None:
    """Return the function of ``checks`` that is named as the program, if there is one."""
    name = script.parent.name if script.name == "main.py" else script.stem
    return runpy.run_path(str(checks)).get(name) if checks else None


def start(script: Path, rank: int, of: int, port: int | None, checks: Path | None) -> int:
    """Start one rank of a program with ``of`` ranks and return its process id."""
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
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(of)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        sys.path[0], sys.argv = str(script.parent), [str(script)]
        torch.set_num_threads(1)
        keep_process_groups()
        names = runpy.run_path(str(script), run_name="__main__")
        sys.stdout.flush()
        code = CHECK_FAILED
        if check := check_of(script, checks):
            check(names)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def start_program(script: Path, ranks: int, plain: bool = False, checks: Path | None = None) -> list[int]:
    """Start the ranks of a program, or one process."""
    if plain:
        return [start(script, 0, 1, None, checks)]
    with socket.socket() as reserved:
        # The ranks inherit the socket: as it does not listen, rank 0 can, and nobody else is given the port.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        return [start(script, rank, ranks, port, checks) for rank in range(ranks)]


def run(
    directory: Path,
    plain: Collection[str],
    limit_s: float,
    at_a_time: int,
    checks: Path | None,
    of_four: Collection[str],
) -> dict[str, list[int]]:
    """Return the exit codes of all ranks of each program; of one process for those that are ``plain``."""
    names = sorted(str(p.relative_to(directory)) for p in (*directory.glob("*.py"), *directory.glob("*/main.py")))
    waiting, codes = names[::-1], {name: [0] * (4 if name in of_four else 2) for name in names}
    running: dict[int, tuple[str, int]] = {}
    ends: dict[str, float] = {}
    while waiting or running:
        if waiting and len(running) <= (at_a_time - 1) * 2:
            name = waiting.pop()
            ends[name] = time.monotonic() + limit_s
            for rank, pid in enumerate(start_program(directory / name, len(codes[name]), name in plain, checks)):
                running[pid] = (name, rank)
            continue
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            name, rank = running.pop(pid)
            codes[name][rank] = os.waitstatus_to_exitcode(status)
            if codes[name][rank]:
                ends[name] = min(ends[name], time.monotonic() + AFTER_FAILURE_S)
            continue
        now = time.monotonic()  # the same for all ranks: one that outlives the other by a moment may fail by itself
        for pid, (name, _) in running.items():
            if now > ends[name]:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return codes


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("plain", nargs="*")
    parser.add_argument("--limit-s", type=float, default=60)
    parser.add_argument("--at-a-time", type=int, default=5)
    parser.add_argument("--of-four", action="append", default=[], help="a program that is run on four ranks")
    parser.add_argument("--checks", type=lambda path: Path(path).resolve())
    parser.add_argument("--import", dest="imports", action="append", default=[], help="what many programs import too")
    return parser.parse_args()


if __name__ == "__main__":
    options = vars(arguments())
    for module in options.pop("imports"):
        importlib.import_module(module)
    gc.freeze()  # a rank would spend more time on collections of what is imported than on most programs
    print(json.dumps(run(**options)))
