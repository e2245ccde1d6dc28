"""The copier of ``ddpwizard run``: passes the standard error of the ranks on to its destination, and copies it.

C++ writes the message of an abort to descriptor 2 itself, so descriptor 2 of a rank is a pipe (at a terminal, a
pseudo-terminal) that this process reads. A process of its own: the job neither waits for the watchdog nor ends with it,
and what a killed rank has written is not lost. Run by ``app/watchdog/error_copier.py`` (standard library only)::

    python -IS copy_errors.py FOLDER LISTENER_FD CONTROL_FD

A rank connects to the listener and sends its pid, with two descriptors: the one to read, and its original standard
error. It is answered once both are here. A byte on CONTROL_FD is answered when everything written so far is passed on.
When CONTROL_FD is closed, the process ends with the last rank.
"""

import fcntl
import os
import select
import socket
import sys
import termios
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "flight_hook"))
from ddpwizard_output import OutputCopy  # pyright: ignore[reportMissingImports]

CHUNK_BYTES = 65536
LINE_LIMIT = 4096  # of a line without an end so far
REQUEST_LIMIT_S = 5.0


class RankErrors:
    """The standard error of one rank."""

    def __init__(self, folder: str, pid: int, source: int, destination: int) -> None:
        self.source, self._destination = source, destination
        self._copy = OutputCopy(folder, pid)
        self._unfinished = b""
        self._is_terminal = os.isatty(destination)

    def pass_on(self) -> bool:
        """Pass on and copy what can be read. Return whether more may come."""
        if self._is_terminal:
            self._resize()
        try:
            data = os.read(self.source, CHUNK_BYTES)
        except OSError:  # a pseudo-terminal without a writer
            data = b""
        if not data:
            self._append(self._unfinished)
            os.close(self.source)
            os.close(self._destination)
            return False
        self._write(data)
        whole, end, rest = (self._unfinished + data).rpartition(b"\n")
        if end:
            self._append(whole)
        self._unfinished = rest.rpartition(b"\r")[2][-LINE_LIMIT:]  # a progress bar overwrites itself
        return True

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._destination, left) :]
            except BlockingIOError:
                select.select([], [self._destination], [])
            except OSError:
                return  # its reader is gone

    def _append(self, data: bytes) -> None:
        if data:
            lines = (line.rstrip(b"\r").rpartition(b"\r")[2] for line in data.split(b"\n"))
            with suppress(OSError):  # the directory is removed, or full
                self._copy.append(b"\n".join(lines).decode(errors="replace"))

    def _resize(self) -> None:
        """Give the pseudo-terminal the size of the terminal."""
        with suppress(OSError):
            size = fcntl.ioctl(self._destination, termios.TIOCGWINSZ, bytes(8))
            if size != fcntl.ioctl(self.source, termios.TIOCGWINSZ, bytes(8)):
                fcntl.ioctl(self.source, termios.TIOCSWINSZ, size)


def accept(listener: socket.socket, folder: str) -> "RankErrors | None":
    """Return the rank that connects, or None if it sends something else."""
    connection, _ = listener.accept()
    with connection, suppress(OSError, ValueError):
        connection.settimeout(REQUEST_LIMIT_S)
        pid, descriptors, _, _ = socket.recv_fds(connection, 32, 2)
        source, destination = descriptors
        rank = RankErrors(folder, int(pid), source, destination)
        connection.send(b"1")
        return rank
    return None


def main(folder: str, listener_fd: int, control_fd: int) -> None:
    """Pass on until the control is closed and no rank is left."""
    listener, control = socket.socket(fileno=listener_fd), socket.socket(fileno=control_fd)
    ranks: dict[int, RankErrors] = {}
    poller = select.poll()
    for fd in (listener_fd, control_fd):
        poller.register(fd, select.POLLIN)
    is_asked = is_ending = False
    while True:
        found = [fd for fd, _ in poller.poll(0 if is_asked or (is_ending and not ranks) else None)]
        for fd in found:
            if fd in ranks:
                if not ranks[fd].pass_on():
                    poller.unregister(fd)
                    del ranks[fd]
            elif fd == listener_fd:
                if rank := accept(listener, folder):
                    ranks[rank.source] = rank
                    poller.register(rank.source, select.POLLIN)
            elif control.recv(1):
                is_asked = True
            else:
                is_ending = True
                poller.unregister(control_fd)
        if not found and is_asked:
            is_asked = False
            with suppress(OSError):
                control.send(b"1")
        elif not found and is_ending and not ranks:
            return


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    except Exception as error:
        with Path(sys.argv[1], "hook.log").open("a") as log:
            log.write(f"copy_errors: {type(error).__name__}: {error}\n")
