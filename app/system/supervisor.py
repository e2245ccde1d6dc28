"""The supervisor: a small process between the wizard and the commands it starts, so that none outlives the wizard.

Run as a script by ``app/system/subprocesses.py`` (standard library only)::

    python -IS supervisor.py LIVENESS_FD LIMIT_S -- COMMAND…

It becomes the reaper of its descendants and starts COMMAND. When COMMAND ends, LIMIT_S is over, or the socket
LIVENESS_FD is closed (the wizard cancelled or is gone), it ends *all descendants that /proc shows*, repeatedly until
none is left.
A process group is not enough: torchrun gives each rank a session of its own, and ranks outlive a killed torchrun. The
result of COMMAND goes back over LIVENESS_FD as one line: ``exited N`` (128+n for a signal), ``timed_out``, ``let_go``
or ``not_started``. If the supervisor is killed itself, COMMAND gets SIGTERM, and the wizard ends all processes with
``MARK`` in their environment. The directory named by ``SCRATCH`` is removed if LIVENESS_FD was closed: a wizard that is
gone cannot do it.
"""

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MARK = "DDPWIZARD_SUPERVISOR"  # variable of every process below one supervisor
SCRATCH = "DDPWIZARD_SCRATCH"  # variable of the supervisor only
PID_MAX = 1 << 22  # of Linux on 64 bits
POLL_S = 0.02
PAUSE_MAX_S = 0.5
TERM_GRACE_S = 0.2
MOST_DEAD = 100_000  # collected in one call; uncollected ones would be read and killed again each round
MARKED_LIMIT_S = 10.0
BURST = 50  # rounds of a loop that may not end otherwise
TAKEN_OVER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def pids_in_proc() -> list[str]:
    """Return the processes that /proc shows; none where it is not mounted."""
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def descendants(*roots: int) -> list[int]:
    """Return every process below ``roots``, parents before children, from one pass over /proc."""
    children: dict[int, list[int]] = {}
    for name in pids_in_proc():
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    queue = list(roots)
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def current_descendants() -> list[int]:
    """Return the current descendants started by main threads, in a few microseconds each.

    Empty if the kernel lacks CONFIG_PROC_CHILDREN.
    """
    found = [os.getpid()]
    for pid in found:
        with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", "rb") as listing:
            found += [int(child) for child in listing.read().split()]
    return found[1:]


def children_without_proc() -> list[int]:
    """Return the living children of this process by asking the kernel about each pid since its own."""
    newest = os.fork()
    if newest == 0:
        os._exit(0)
    os.waitpid(newest, 0)
    own = os.getpid()
    found: list[int] = []
    for pid in (*range(own + 1, newest if newest > own else PID_MAX), *range(2, newest if newest < own else 2)):
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                found.append(pid)
    return found


def end_marked(mark: str) -> None:
    """End every process that carries this mark, after its supervisor was killed."""
    number, until = signal.SIGTERM, time.monotonic() + MARKED_LIMIT_S
    while (pids := marked(mark)) and time.monotonic() < until:
        send_signal(pids, number)
        time.sleep(TERM_GRACE_S)
        number = signal.SIGKILL


def marked(mark: str) -> list[int]:
    """Return the processes with this mark in their environment."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for name in pids_in_proc():
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as environ:
            if wanted in environ.read().split(b"\0"):
                found.append(int(name))
    return found


def send_signal(pids: list[int], number: int) -> None:
    """Send a signal to each process; one that is gone already is no error."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap() -> "dict[int, int] | None":
    """Collect the ended children: pid to wait status. Return None if no child is left, dead or alive.

    Orphans are handed to the supervisor, so no child left means no descendant left; this test has no race.
    """
    ended: dict[int, int] = {}
    for _ in range(MOST_DEAD):
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended or None
        if pid == 0:
            break
        ended[pid] = status
    return ended


def end_all() -> None:
    """End every descendant: SIGTERM first, then stop and kill until none is left.

    All are stopped before any is killed, so that a process that replaces dead neighbours gets no chance to.
    """
    if reap() is None:
        return
    left = descendants(os.getpid()) or children_without_proc()
    send_signal(left, signal.SIGTERM)
    send_signal(left, signal.SIGCONT)
    until = time.monotonic() + TERM_GRACE_S
    while reap() is not None and time.monotonic() < until:
        time.sleep(POLL_S)
    pause_s = 0.0
    known: set[int] = set()
    while reap() is not None:
        # The current ones first: a process that forks and exits for ever is gone before all of /proc is read.
        stopped = stop_all(current_descendants) | stop_all(lambda: descendants(os.getpid()))
        stopped = stopped or stop_all(children_without_proc)
        send_signal(sorted(stopped), signal.SIGKILL)
        # A process inside the kernel can take for ever: wait at low cost. While new ones appear, do not wait at all.
        pause_s = min(pause_s + 0.001, PAUSE_MAX_S) if stopped <= known else 0.0
        known |= stopped
        time.sleep(pause_s)


def stop_all(list_pids: Callable[[], list[int]]) -> set[int]:
    """Stop all processes that ``list_pids`` returns until it returns no new one."""
    stopped: set[int] = set()
    for _ in range(BURST):
        fresh = [pid for pid in list_pids() if pid not in stopped]
        if not fresh:
            break
        send_signal(fresh[::-1], signal.SIGSTOP)  # the youngest may be about to start another
        stopped.update(fresh)
    return stopped


def remove_tree(path: "str | os.PathLike[str]") -> None:
    """Remove a directory. An overlay file system leaves directories in it that their own user may not read."""
    for parent, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(parent, name)
            if not os.path.islink(inner):
                with suppress(OSError):
                    os.chmod(inner, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def wait_for_command(pid: int, life_fd: int, limit_s: float) -> str:
    """Wait for the command, its limit or the end of the socket, and return the line that reports which it was."""
    until = time.monotonic() + limit_s
    poll = select.poll()
    poll.register(life_fd, select.POLLIN | select.POLLHUP)
    while True:
        status = (reap() or {}).get(pid)
        if status is not None:
            return f"exited {128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)}"
        if time.monotonic() >= until:
            return "timed_out"
        if poll.poll(POLL_S * 1000):
            return "let_go"


def main() -> None:
    liveness = socket.socket(fileno=int(sys.argv[1]))
    limit_s, command, scratch = float(sys.argv[2]), sys.argv[4:], os.environ.pop(SCRATCH, "")
    prctl, own = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def prepare_child() -> None:
        for number in TAKEN_OVER:
            signal.signal(number, signal.SIG_DFL)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != own:  # the supervisor was killed meanwhile
            os._exit(1)

    for number in TAKEN_OVER:
        signal.signal(number, signal.SIG_IGN)
    keep = [int(fd) for fd in os.environ.get("DDPWIZARD_KEEP_FDS", "").split(",") if fd]
    try:
        child = subprocess.Popen(command, pass_fds=keep, restore_signals=True, preexec_fn=prepare_child)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        message = "not_started"
    else:
        for fd in keep:
            os.close(fd)
        message = wait_for_command(child.pid, liveness.fileno(), limit_s)
        end_all()
        if message == "let_go" and scratch:
            remove_tree(scratch)
    with suppress(OSError):  # the wizard may be gone
        liveness.sendall(message.encode())


if __name__ == "__main__":
    main()
