"""Start a child under the supervisor with a hard time limit; read its answer and the end of its log."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from . import supervisor

SUPERVISOR_FILE = Path(supervisor.__file__)
LOG_TAIL_BYTES = 256 * 1024
ANSWER_LIMIT_BYTES = 256 * 1024 * 1024
LINE_LIMIT_BYTES = 64 * 1024  # a longer line is passed on in pieces
READ_BYTES = 64 * 1024
SUPERVISOR_SLACK_S = 5.0  # what the supervisor may take to end the last descendant after the limit

OnOutput = Callable[[str], None]

_supervisors: list[subprocess.Popen[bytes]] = []  # kept until they have ended, so that none stays a zombie


class ProcessOutcome(msgspec.Struct, frozen=True):
    """Result of a child process.

    ``answer`` is the output on its answer descriptor, ``log`` the end of stdout and stderr. ``code`` is the exit code
    of the child, 128+n for a signal, -1 if it has none.
    """

    status: Literal["ok", "failed", "timed_out", "not_started"]
    code: int
    answer: bytes
    log: str
    elapsed_s: float
    limit_s: float

    @property
    def why(self) -> str:
        """One line with the reason of the failure."""
        if self.status == "timed_out":
            return f"did not answer within {self.limit_s:g} s"
        last = next((line.strip()[:200] for line in reversed(self.log.splitlines()) if line.strip()), "")
        if self.status == "not_started":
            return last or "could not be started"
        return f"ended with code {self.code}" + (f": {last}" if last else "")


async def run_process(
    command: Sequence[str],
    *,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    answers: bool = False,
    on_output: OnOutput | None = None,
    scratch: Path | None = None,
) -> ProcessOutcome:
    """Run ``command`` under the supervisor and wait for it.

    With ``answers`` the child finds the number of a descriptor for its answer in ``DDPWIZARD_ANSWER_FD``. Its stdout
    and stderr are log, passed line by line to ``on_output``. Cancelling the coroutine, or the death of its process,
    ends the child and all its descendants; the cancelled call returns at once while the supervisor does its work.
    ``scratch``: a directory of the child, which is removed in both cases; after the end of the child it is kept.
    """
    started = time.monotonic()
    _supervisors[:] = [process for process in _supervisors if process.poll() is None]
    liveness, supervisor_liveness = socket.socketpair()
    log_read, log_write = os.pipe()
    answer_read, answer_write = os.pipe() if answers else (-1, -1)
    full_env = dict(os.environ if env is None else env)
    full_env |= {"DDPWIZARD_KEEP_FDS": "", supervisor.MARK: (mark := secrets.token_hex(8))}
    if scratch:
        full_env[supervisor.SCRATCH] = str(scratch)
    if answers:
        full_env |= {"DDPWIZARD_KEEP_FDS": str(answer_write), "DDPWIZARD_ANSWER_FD": str(answer_write)}
    argv = [
        sys.executable,
        "-IS",
        str(SUPERVISOR_FILE),
        str(supervisor_liveness.fileno()),
        str(limit_s),
        "--",
        *command,
    ]
    log = _Stream(log_read, LOG_TAIL_BYTES, on_output)
    answer = _Stream(answer_read, ANSWER_LIMIT_BYTES) if answers else None
    streams = [log, answer] if answer else [log]
    try:
        try:
            # Not asyncio's subprocess, which kills the child when the loop closes: the supervisor must outlive us.
            process = subprocess.Popen(  # noqa: ASYNC220
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log_write,
                stderr=log_write,
                env=full_env,
                cwd=cwd,
                pass_fds=[fd for fd in (supervisor_liveness.fileno(), answer_write) if fd >= 0],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # no such cwd, an argument list too long, a NUL in an argument
            return ProcessOutcome(
                "not_started", -1, b"", f"cannot start {command[0]}: {error}", time.monotonic() - started, limit_s
            )
        finally:
            supervisor_liveness.close()
            _close(log_write, answer_write)
        _supervisors.append(process)
        reads = [stream.start() for stream in streams]
        asyncio.get_running_loop().add_reader(liveness, _supervisor_ended, liveness, mark)
        finished, unfinished = await asyncio.wait(
            reads, timeout=limit_s + SUPERVISOR_SLACK_S, return_when=asyncio.FIRST_EXCEPTION
        )
        for read in finished:
            read.result()
        # The supervisor keeps the log open until it ends: after the end of the log there is nothing to wait for.
        if unfinished:
            message = "timed_out"
        else:
            process.wait()
            message = _last_message(liveness)
    finally:
        asyncio.get_running_loop().remove_reader(liveness)
        liveness.close()
        for stream in streams:
            stream.close()
    status, code = _parse_message(message)
    return ProcessOutcome(
        status, code, bytes(answer.data) if answer else b"", log.text(), time.monotonic() - started, limit_s
    )


class _Stream:
    """Reader of a pipe: keeps the last bytes and passes lines on as they arrive; any length, any encoding."""

    def __init__(self, fd: int, limit_bytes: int, on_line: OnOutput | None = None) -> None:
        self.data = bytearray()
        self._fd, self._limit_bytes, self._on_line = fd, limit_bytes, on_line
        self._line = b""
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()

    def start(self) -> "asyncio.Future[None]":
        """Begin to read; the future is done when all writers have closed their end."""
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._readable)
        return self._done

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        _close(self._fd)

    def text(self) -> str:
        return self.data.decode(errors="replace")

    def _readable(self) -> None:
        try:
            chunk = os.read(self._fd, READ_BYTES)
            self._feed(chunk)
        except BlockingIOError:
            return
        except Exception as error:  # raised by on_line: it ends the run and reaches the caller
            self._finish(error)
        else:
            if not chunk:
                self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        self._loop.remove_reader(self._fd)
        if self._done.done():
            return
        if error:
            self._done.set_exception(error)
        else:
            self._done.set_result(None)

    def _feed(self, chunk: bytes) -> None:
        self.data += chunk
        del self.data[: -self._limit_bytes]
        if not self._on_line:
            return
        *whole, self._line = (self._line + chunk).split(b"\n")
        if self._line and (not chunk or len(self._line) > LINE_LIMIT_BYTES):
            whole.append(self._line)
            self._line = b""
        for line in whole:
            self._on_line(line.decode(errors="replace"))


def _supervisor_ended(liveness: socket.socket, mark: str) -> None:
    """End the descendants of a supervisor that was killed: it sent no message."""
    loop = asyncio.get_running_loop()
    loop.remove_reader(liveness)
    with suppress(ConnectionError):
        if liveness.recv(64, socket.MSG_PEEK):
            return
    loop.run_in_executor(None, supervisor.end_marked, mark)


def _last_message(liveness: socket.socket) -> str:
    """Return the last message of the supervisor, which has ended, or "" if it was killed."""
    try:
        return liveness.recv(64).decode()
    except ConnectionError:
        return ""


def _parse_message(message: str) -> tuple[Literal["ok", "failed", "timed_out", "not_started"], int]:
    word, _, number = message.partition(" ")
    if word == "timed_out":
        return "timed_out", -1
    if word == "not_started":
        return "not_started", -1
    code = int(number or -1)
    return ("failed" if code else "ok"), code


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)
