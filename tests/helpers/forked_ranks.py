"""torchrun whose ranks are forks of a process that has imported torch, shown by ``/proc`` as programs of their own.

A fork of the agent itself would at times wait for ever: for a lock of the C library that another thread of the agent
had at that moment. So a process with one thread makes the ranks, and the kernel gives them to the agent, as their
parent is a process in between that ends.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from helpers.fork_server import run_function, run_script

PR_SET_MM, PR_SET_MM_MAP, PR_SET_MM_MAP_SIZE, PR_SET_CHILD_SUBREAPER = 35, 14, 15, 36
NO_FILE = 0xFFFFFFFF
MESSAGE_BYTES = 1 << 20
POLL_S = 0.02
KEPT: list[object] = []  # the memory that the kernel reads for /proc
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.sbrk.restype = ctypes.c_void_p


class MemoryMap(ctypes.Structure):
    """``struct prctl_mm_map`` of prctl(2)."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data", "start_brk")),
        *((name, ctypes.c_uint64) for name in ("brk", "start_stack", "arg_start", "arg_end", "env_start", "env_end")),
        *(("auxv", ctypes.c_uint64), ("auxv_size", ctypes.c_uint32), ("exe_fd", ctypes.c_uint32)),
    ]


@cache
def can_show() -> bool:
    """Return whether the kernel has PR_SET_MM_MAP (CONFIG_CHECKPOINT_RESTORE)."""
    size = ctypes.c_uint()
    return LIBC.prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, ctypes.byref(size), 0, 0) == 0


def show_as(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Set the command line and the environment that ``/proc`` shows of this process."""
    words = b"".join(os.fsencode(word) + b"\0" for word in command)
    pairs = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environ.items())
    memory = ctypes.create_string_buffer(words + pairs)
    start = ctypes.addressof(memory)
    fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[1:]
    of_kernel = dict(enumerate(map(int, fields), 4))  # numbered as in proc(5)
    placed = MemoryMap(
        *(of_kernel[number] for number in (26, 27, 45, 46, 47)),
        LIBC.sbrk(0),
        of_kernel[28],
        *(start, start + len(words), start + len(words), start + len(words) + len(pairs)),
        *(0, 0, NO_FILE),
    )
    if LIBC.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(placed), ctypes.c_ulong(ctypes.sizeof(placed)), 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM)")
    KEPT.append(memory)


class ForkedRank:
    """The part of ``subprocess.Popen`` that the agent of torchrun uses, for ``python -u SCRIPT ARGUMENTS``."""

    maker: ClassVar[socket.socket]

    def __init__(self, args: Sequence[str], env: Mapping[str, str], stdout: Any, stderr: Any, **_options: Any) -> None:
        self.returncode: int | None = None
        streams = [stdout.fileno() if stdout else 1, stderr.fileno() if stderr else 2]
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        socket.send_fds(self.maker, [json.dumps([args, dict(env)]).encode()], streams)
        self.pid = int(self.maker.recv(16))
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end and return the exit code."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(POLL_S)
        return code


def make_ranks(requests: socket.socket) -> None:
    """Make the ranks that the agent requests, until it has ended; in a rank, run its script and end."""
    while True:
        message, streams, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 2)
        if not message:
            return
        number, to_maker = os.pipe()
        between = os.fork()
        if not between:
            if pid := os.fork():
                os.write(to_maker, str(pid).encode())
                os._exit(0)
            for descriptor in (requests.fileno(), number, to_maker):
                os.close(descriptor)
            args, env = json.loads(message)
            os._exit(run_rank(args, env, streams))
        os.waitpid(between, 0)  # from now on the rank is a child of the agent
        requests.send(os.read(number, 16))
        for descriptor in (number, to_maker, *streams):
            os.close(descriptor)


def run_rank(args: Sequence[str], env: Mapping[str, str], streams: Sequence[int]) -> int:
    """Become a rank and return its exit code."""
    os.setsid()
    for number, descriptor in enumerate(streams, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(env)
    if can_show():
        show_as(args, env)
    sys.argv = [*args[2:]]  # after the interpreter and -u
    sys.path[0] = str(Path(sys.argv[0]).parent)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # pyright: ignore[reportAttributeAccessIssue]
    return run_script(Path(sys.argv[0]))


def run_agent(command: Sequence[str]) -> int:
    """Become ``python -m torch.distributed.run …`` or ``python …/torchrun …`` and return its exit code."""
    from torch.distributed import run as launcher
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    ForkedRank.maker, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ForkedRank.maker.close()
        make_ranks(requests)
        os._exit(0)
    requests.close()
    if can_show():
        show_as(command, os.environ)
    subprocess_handler.Popen = ForkedRank  # pyright: ignore[reportPrivateImportUsage]
    options = 3 if command[1] == "-m" else 2
    sys.argv = ["torchrun", *command[options:]]
    return run_function(launcher.main)
