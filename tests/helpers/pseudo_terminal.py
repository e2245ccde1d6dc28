"""A program in a pseudo-terminal: what it writes, when, how much, and what a person would see.

Bytes are timestamped as they arrive and fed to a ``pyte`` screen. Nothing is read between calls, so a program that
writes a lot is slowed, as over a slow line; every call that waits reads.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyte

ALTERNATE_ON, ALTERNATE_OFF = b"\x1b[?1049h", b"\x1b[?1049l"
KEYS = {
    "up": "\x1b[A",
    "down": "\x1b[B",
    "home": "\x1b[H",
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "ctrl+c": "\x03",
}
# pyte prints the end of what it does not know: private modes asked for ($p) and the kitty keyboard protocol (u).
UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[?>=<][0-9;]*(?:\$p|u|m|q)|\x1b\[>[0-9;]*[a-zA-Z]|\x1bP[^\x1b]*\x1b\\")
MARK = "DDPWIZARD_TEST_MARK"


def _as_in_a_terminal() -> None:
    """A controlling terminal, and signals that work also where the tests were started in the background or by nohup."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    """``command`` under a terminal of its own. Use as a context manager: what is left is killed at the end.

    Every process it starts carries ``mark`` in its environment, so that orphans can be found (``marked``).
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.screen = pyte.Screen(columns, rows)
        self.chunks: list[tuple[float, bytes]] = []  # seconds since the start, what came
        self._stream = pyte.ByteStream(self.screen)
        self._held = b""  # an escape sequence that has not come whole
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        full = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TMUX", "ACCESSIBLE")}
        full |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", MARK: self.mark, **(env or {})}
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            list(command),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=full,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_as_in_a_terminal,
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        for pid in marked(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Close our end, as when the connection is lost: the program gets SIGHUP."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    @property
    def descriptor(self) -> int:
        """Our end, on which the attributes of the terminal can be read."""
        return self._master

    @property
    def text(self) -> str:
        """Return the text of the screen, lines joined."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def output(self) -> bytes:
        """Everything written so far."""
        return b"".join(chunk for _, chunk in self.chunks)

    @property
    def count_bytes(self) -> int:
        """Return the number of bytes written so far."""
        return sum(len(chunk) for _, chunk in self.chunks)

    def send(self, *keys: str) -> None:
        """Type: names from ``KEYS``, other strings as they are."""
        for key in keys:
            os.write(self._master, KEYS.get(key, key).encode())

    def read(self, wait_s: float) -> bool:
        """Take what comes within ``wait_s``: True when something came."""
        if self._master < 0 or not select.select([self._master], [], [], wait_s)[0]:
            return False
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # the program has closed its end
            return False
        if not chunk:
            return False
        self.chunks.append((time.monotonic() - self.started, chunk))
        self._feed(chunk)
        return True

    def wait_until(self, seen: Callable[[], bool], what: str, limit_s: float = 90.0) -> float:
        """Read until ``seen()``; the seconds from the start to the last chunk that came.

        Raises:
            AssertionError: It did not come in time, or the program ended first; with the screen.
        """
        until = time.monotonic() + limit_s
        while not seen():
            ended = self.process.poll() is not None
            if not self.read(0.05) and ended and not seen():
                raise AssertionError(f"ended with {self.process.returncode} before {what}; screen:\n{self.text}")
            if time.monotonic() > until:
                raise AssertionError(f"no {what} within {limit_s} s; screen:\n{self.text}")
        return self.chunks[-1][0] if self.chunks else 0.0

    def wait_for(self, text: str, limit_s: float = 90.0) -> float:
        """Read until the screen shows ``text``; the seconds from the start."""
        return self.wait_until(lambda: text in self.text, repr(text), limit_s)

    def wait_quiet(self, quiet_s: float = 0.5, limit_s: float = 90.0) -> None:
        """Read until nothing arrived for ``quiet_s`` and the program is idle: it may only be runnable.

        Raises:
            AssertionError: The program did not become idle within the limit.
        """
        until = time.monotonic() + limit_s
        while self.read(quiet_s) or not rests(self.process.pid):
            if time.monotonic() > until:
                raise AssertionError(f"still writing after {limit_s} s; screen:\n{self.text}")

    def bytes_during(self, seconds: float) -> int:
        """Return the number of bytes written in the next ``seconds``."""
        before, until = self.count_bytes, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.read(left)
        return self.count_bytes - before

    def frames(self, seconds: float) -> Iterator[float]:
        """Take what comes in the next ``seconds`` as it comes, then show one chunk after the other: the seconds from
        the start to each. (To show one takes milliseconds, in which the next would wait.)"""
        came: list[tuple[float, bytes]] = []
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._master], [], [], left)[0]:
                chunk = os.read(self._master, 65536)
                came.append((time.monotonic() - self.started, chunk))
        for at, chunk in came:
            self.chunks.append((at, chunk))
            self._feed(chunk)
            yield at

    def wait_exit(self, limit_s: float = 90.0) -> int:
        """Read until the program ends; its exit code (negative: the signal that ended it)."""
        until = time.monotonic() + limit_s
        while self.process.poll() is None:
            self.read(0.05)
            if time.monotonic() > until:
                raise AssertionError(f"still running after {limit_s} s; screen:\n{self.text}")
        while self.read(0.05):
            pass
        return self.process.returncode

    def _feed(self, chunk: bytes) -> None:
        data = self._held + chunk
        cut = data.rfind(b"\x1b")
        whole = cut < 0 or re.match(rb"\x1b(\[[0-9;?><=$]*[a-zA-Z@`~]|[^\[P])", data[cut:])
        self._held, data = (b"", data) if whole else (data[cut:], data[:cut])
        self._stream.feed(UNKNOWN_TO_PYTE.sub(b"", data))


def rests(pid: int) -> bool:
    """Return whether no thread of a process runs or is runnable; True for a process that has ended."""
    states: set[bytes] = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            states.add(thread.read_bytes().rpartition(b")")[2].split()[0])
    return not {b"R", b"D"} & states


def marked(mark: str) -> list[int]:
    """Every living process whose environment carries ``mark``."""
    found: list[int] = []
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state != b"Z" and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
