"""The ``ddpwizard`` command as a fork of a process that has imported it: one process per command, as by an interpreter.

To start an interpreter and to import the command takes most of the time of most commands. For commands that inspect no
processes, as the command line of a fork is that of its server.
"""

import atexit
import gc
import importlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from helpers.fork_server import run_function

COMMANDS = {"completion", "diagnose", "explain", "kb", "learn", "plan", "review", "sessions", "undo"}
TESTS = Path(__file__).parents[1]
FOR_INTERPRETER = ("PYTHON", "LANG", "LC_")  # beginnings of variables that an interpreter reads when it starts


class Server(NamedTuple):
    address: str
    environ: dict[str, str]  # what its interpreter has read


def can_fork(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether a fork of the server does the same as an interpreter of its own."""
    command = next((word for word in arguments if not word.startswith("-")), "")
    return command in COMMANDS and _for_interpreter(environ) == _server().environ


def run_forked(
    arguments: Sequence[str], given: bytes, environ: Mapping[str, str], directory: Path, limit_s: float
) -> tuple[int, bytes, bytes]:
    """Return the exit code, the standard output and the standard error of ``python -m ddpwizard ARGUMENTS``.

    Raises:
        TimeoutError: It has not ended after the limit; it is killed then.
    """
    request = {"arguments": arguments, "environ": dict(environ), "directory": str(directory)}
    (its_input, to_input), (from_output, its_output), (from_error, its_error) = (os.pipe() for _ in range(3))
    with socket.socket(socket.AF_UNIX) as connection, ThreadPoolExecutor(3) as pool:
        connection.connect(_server().address)
        connection.settimeout(limit_s)
        socket.send_fds(connection, [b" "], [its_input, its_output, its_error])
        for descriptor in (its_input, its_output, its_error):
            os.close(descriptor)
        connection.sendall(json.dumps(request).encode() + b"\n")
        pool.submit(_write, to_input, given)
        output, error = pool.submit(_read, from_output), pool.submit(_read, from_error)
        try:
            code = int(connection.recv(16))
        finally:
            connection.close()  # a command that runs is killed, and the streams end
        return code, output.result(), error.result()


def _write(descriptor: int, given: bytes) -> None:
    with open(descriptor, "wb", buffering=0) as stream:
        stream.write(given)  # BrokenPipeError, which nobody asks for, if the command does not read it


def _read(descriptor: int) -> bytes:
    with open(descriptor, "rb") as stream:
        return stream.read()


def _for_interpreter(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(FOR_INTERPRETER)}


@cache
def _server() -> Server:
    """Start the server of this process."""
    environ = dict(os.environ)
    address = f"\0{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        command = [sys.executable, "-m", "helpers.command_server", str(listener.fileno())]
        server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # all streams are pipes, as those of its forks, which an interpreter treats apart
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            cwd=TESTS,
            pass_fds=[listener.fileno()],
        )
    atexit.register(server.communicate, timeout=30)  # it ends with its standard input
    return Server(address, _for_interpreter(environ))


def serve(listener: socket.socket) -> dict[str, Any] | None:
    """Start the commands that are requested. Return each in its process; None at the end of the standard input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the parents of the commands
    while True:
        ready, _, _ = select.select([0, listener], [], [])
        if 0 in ready:
            return None
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            return start(connection)
        connection.close()


def start(connection: socket.socket) -> dict[str, Any]:
    """Return what is requested in a process of its own; this one writes its exit code and ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile() as lines:
        request = json.loads(lines.readline())
    pid = os.fork()
    if not pid:
        connection.close()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        return request
    for descriptor in (0, 1, 2, *streams):
        os.close(descriptor)
    ready, _, _ = select.select([os.pidfd_open(pid), connection], [], [])
    if connection in ready:  # nobody waits for it any more
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(request: dict[str, Any]) -> int:
    """Run the command in this process and return its exit code."""
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environ"])
    main = importlib.import_module("ddpwizard.__main__")
    sys.argv = [main.__file__, *request["arguments"]]
    sys.path[0] = request["directory"]
    return run_function(main.main)


if __name__ == "__main__":
    for module in ("ddpwizard.cli", *(f"ddpwizard.app.commands.{name}" for name in COMMANDS)):
        importlib.import_module(module)
    gc.freeze()
    requested = serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(become(requested) if requested else 0)
