"""Record when and how each rank ended, at once: the launcher ends the other ranks a moment later, and the first one
matters. Ranks are not children of this process; a process descriptor reports their end (pidfd_open(2))."""

import fcntl
import os
import select
import signal
import struct
import threading
import time
from contextlib import suppress

import msgspec

from ..system import proc_files

# From linux/pidfd.h: the request _IOWR(0xFF, 11, struct pidfd_info), a struct that starts with a mask of 64 bits and
# ends with the exit status; since Linux 6.15 of a process that its parent has reaped.
GET_INFO = 0xC040FF0B
INFO_BYTES = 64
INFO_EXIT = 1 << 3
EXIT_CODE = 49  # of the fields of /proc/PID/stat after the name; 0 where it may not be read (proc(5))


class ProcessExit(msgspec.Struct, frozen=True):
    """The end of a process: its time, and its wait status (None if its parent had reaped it)."""

    at: float
    status: int | None

    @property
    def how(self) -> str:
        """``killed by SIGKILL``, ``ended with code 1``, or "" if it ended with 0 or the status is unknown."""
        if not self.status:
            return ""
        if number := self.status & 0x7F:
            return f"killed by {signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'}"
        return f"ended with code {self.status >> 8}"


class ExitWatcher:
    """Watches processes in a thread of its own, which sleeps until one of them ends."""

    def __init__(self) -> None:
        self.seen: dict[int, ProcessExit] = {}
        self._pids: dict[int, int] = {}  # descriptor -> pid
        self._poll = select.epoll()
        self._wake, self._woken = os.pipe()
        self._poll.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def watch(self, pid: int) -> None:
        """Watch this process too; ignored if it has ended or the kernel has no process descriptors."""
        if pid in list(self._pids.values()) or pid in self.seen:
            return
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
            self._pids[descriptor] = pid
            self._poll.register(descriptor, select.EPOLLIN)

    def close(self) -> None:
        os.close(self._woken)
        self._thread.join()
        for descriptor in (self._wake, *self._pids):
            os.close(descriptor)
        self._poll.close()

    def _wait(self) -> None:
        while True:
            ended = [descriptor for descriptor, _ in self._poll.poll()]
            if self._wake in ended:
                return
            for descriptor in ended:
                pid = self._pids[descriptor]
                self.seen[pid] = ProcessExit(time.time(), exit_status(pid, descriptor))
                self._poll.unregister(descriptor)
                del self._pids[descriptor]
                os.close(descriptor)


def exit_status(pid: int, descriptor: int) -> int | None:
    """Return the wait status of a process that has ended; None if its parent has reaped it and the kernel is old."""
    fields = proc_files.stat_fields(pid)
    if len(fields) > EXIT_CODE:
        return int(fields[EXIT_CODE])
    info = bytearray(INFO_BYTES)
    struct.pack_into("<Q", info, 0, INFO_EXIT)
    with suppress(OSError):
        fcntl.ioctl(descriptor, GET_INFO, info)
        (known,) = struct.unpack_from("<Q", info)
        if known & INFO_EXIT:
            return struct.unpack_from("<i", info, INFO_BYTES - 4)[0]
    return None
