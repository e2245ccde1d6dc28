"""Times and causes of the end of processes that are not our children."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.watchdog.exit_events import ExitWatcher, ProcessExit, exit_status
from helpers.jobs import wait_for


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (None, ""),
        (0, ""),
        (9, "killed by SIGKILL"),
        (0x86, "killed by SIGABRT"),
        (256, "ended with code 1"),
        (63, "killed by signal 63"),
    ],
)
def test_wait_status_text(status: int | None, how: str) -> None:
    assert ProcessExit(0.0, status).how == how


def test_exit_events_have_order_and_cause() -> None:
    exits = ExitWatcher()
    ranks = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        for rank in ranks:
            exits.watch(rank.pid)
        os.kill(ranks[1].pid, signal.SIGKILL)
        wait_for(lambda: ranks[1].pid in exits.seen, "the first end is seen")
        assert ranks[0].stdin
        ranks[0].stdin.close()
        wait_for(lambda: len(exits.seen) == 2, "the second end is seen")
        first, second = exits.seen[ranks[1].pid], exits.seen[ranks[0].pid]
        assert (first.how, second.how) == ("killed by SIGKILL", "ended with code 1")
        assert first.at < second.at
        assert not pidfds(), "no descriptor is kept for a process that has ended"
        exits.watch(2**22 - 1)
    finally:
        for rank in ranks:
            rank.wait()
        exits.close()


def pidfds() -> list[Path]:
    return [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink() and "pidfd" in str(link.readlink())]


@pytest.mark.parametrize(("end", "status"), [("os.kill(os.getpid(), 9)", 9), ("sys.exit(3)", 3 << 8)])
def test_exit_status_before_and_after_the_parent_reaps(end: str, status: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", f"import os, sys; {end}"])
    descriptor = os.pidfd_open(process.pid)
    try:
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOWAIT)
        assert exit_status(process.pid, descriptor) == status
        process.wait()
        known = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 15)
        assert exit_status(process.pid, descriptor) == (status if known else None)
    finally:
        os.close(descriptor)
