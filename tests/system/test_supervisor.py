"""Nothing outlives the wizard: cancelled, timed out, killed, its terminal closed.

Processes are recognised by a mark in their environment, which every descendant inherits.
"""

import asyncio
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpwizard.app.system import supervisor
from ddpwizard.app.system.subprocesses import run_process

MARK = "DDPWIZARD_TEST_MARK"
GONE_WITHIN_S = 30  # on a busy machine; the processes would live 120 s
STEPS = 20  # of the event loop; the supervisor needs thousands of them to end a family
# Every process of a test ends after its own fuse, so that a broken supervisor cannot flood the machine.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
FUSE = time.monotonic() + 120
def born():
    open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
"""
# A launcher, a rank and the rank's helper, each in a session of its own as torchrun's are; none heeds SIGTERM.
FAMILY = (
    STUBBORN
    + """
for _ in range(2):
    if os.fork():
        break
    os.setsid()
born()
while time.monotonic() < FUSE:
    time.sleep(1)
"""
)
# Three generations in sessions of their own; who loses a child makes another, 200 births at most.
RESPAWNER = (
    STUBBORN
    + """
def live(generation):
    if generation:
        os.setsid()
    born()
    children = set()
    while time.monotonic() < FUSE:
        while generation < 3 and len(children) < 2 and len(os.listdir(sys.argv[1])) < 200:
            pid = os.fork()
            if pid == 0:
                live(generation + 1)
            children.add(pid)
        time.sleep(0.002)
        try:
            children.discard(os.waitpid(-1, os.WNOHANG)[0])
        except ChildProcessError:
            pass
    os._exit(0)
live(0)
"""
)
# Never the same process for long: each starts the next and is gone.
HOPPER = (
    STUBBORN
    + """
born()
while time.monotonic() < FUSE:
    if os.fork():
        os._exit(0)
"""
)


def marked(mark: str) -> list[int]:
    """Return the living processes that carry the mark, without the test itself and zombies."""
    found: list[int] = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        try:
            carries = f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0")
            zombie = (path / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
        except OSError:
            continue
        if carries and not zombie:
            found.append(int(path.name))
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for the condition, or fail the test."""
    until = time.monotonic() + GONE_WITHIN_S
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.01)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a mark for this test, in the environment of everything it starts."""
    monkeypatch.setenv(MARK, str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def births(tmp_path: Path) -> Path:
    """Return the directory where each process of a family leaves its pid."""
    directory = tmp_path / "births"
    directory.mkdir()
    return directory


def count(births: Path) -> int:
    return len(list(births.iterdir()))


def cancel_when(command: list[str], ready: Callable[[], bool]) -> None:
    """Start the command and cancel it once ``ready``; check that the call returns at once."""

    async def scenario() -> None:
        task = asyncio.create_task(run_process(command, limit_s=100))
        await asyncio.to_thread(wait_until, ready)
        task.cancel()
        for _ in range(STEPS):
            await asyncio.sleep(0)
        assert task.cancelled()

    asyncio.run(scenario())


def test_cancel_returns_at_once_and_leaves_no_grandchild(mark: str, births: Path) -> None:
    cancel_when([sys.executable, "-c", FAMILY, str(births)], lambda: count(births) == 3)
    wait_until(lambda: not marked(mark))


def test_time_limit_ends_the_whole_family(mark: str, births: Path) -> None:
    outcome = asyncio.run(run_process([sys.executable, "-c", FAMILY, str(births)], limit_s=6))
    assert outcome.status == "timed_out"
    assert count(births) == 3, "the family was not complete, so nothing was shown"
    assert outcome.elapsed_s < GONE_WITHIN_S
    wait_until(lambda: not marked(mark))  # on a busy machine the supervisor may still be at it


def test_end_of_the_command_ends_its_descendants(mark: str, births: Path) -> None:
    launcher = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {FAMILY!r}, sys.argv[1]])\n"
    launcher += "import os, time\nwhile len(os.listdir(sys.argv[1])) < 3: time.sleep(0.01)\nsys.exit(7)"
    outcome = asyncio.run(run_process([sys.executable, "-c", launcher, str(births)], limit_s=60))
    assert (outcome.status, outcome.code) == ("failed", 7)
    assert count(births) == 3
    assert not marked(mark)


WIZARD = """
import asyncio, sys
from ddpwizard.app.system.subprocesses import run_process
asyncio.run(run_process([sys.executable, "-c", sys.argv[1], sys.argv[2]], limit_s=60))
"""


def test_killed_wizard_leaves_no_process(mark: str, births: Path) -> None:
    wizard = subprocess.Popen([sys.executable, "-c", WIZARD, FAMILY, str(births)])
    wait_until(lambda: count(births) == 3)
    wizard.kill()
    wizard.wait()
    wait_until(lambda: not marked(mark))


SCRATCH_WIZARD = """
import asyncio, pathlib, sys
from ddpwizard.app.system.subprocesses import run_process
command = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
asyncio.run(run_process(command, limit_s=60, scratch=pathlib.Path(sys.argv[3])))
"""


def test_killed_wizard_leaves_no_scratch_directory(mark: str, births: Path, tmp_path: Path) -> None:
    scratch, kept = tmp_path / "scratch", tmp_path / "kept"
    (scratch / "layers" / "work" / "work").mkdir(parents=True)
    (scratch / "layers" / "work" / "work").chmod(0)  # as the kernel leaves it in an overlay
    (kept / "closed").mkdir(parents=True)
    (kept / "closed").chmod(0o500)
    (scratch / "link").symlink_to(kept / "closed")
    wizard = subprocess.Popen([sys.executable, "-c", SCRATCH_WIZARD, FAMILY, str(births), str(scratch)])
    wait_until(lambda: count(births) == 3)
    assert scratch.is_dir()
    wizard.kill()
    wizard.wait()
    wait_until(lambda: not scratch.exists())
    wait_until(lambda: not marked(mark))
    assert (kept / "closed").stat().st_mode & 0o777 == 0o500


def supervisor_of(wizard: int) -> int:
    return next(pid for pid in supervisor.descendants(wizard) if b"supervisor.py" in cmdline(pid))


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_killed_supervisor_leaves_no_process_and_the_wizard_goes_on(mark: str, births: Path) -> None:
    wizard = subprocess.Popen([sys.executable, "-c", WIZARD, FAMILY, str(births)])
    wait_until(lambda: count(births) == 3)
    os.kill(supervisor_of(wizard.pid), signal.SIGKILL)
    assert wizard.wait(GONE_WITHIN_S) == 0
    wait_until(lambda: not marked(mark))


def test_killed_wizard_and_supervisor_end_the_command(mark: str, births: Path) -> None:
    polite = "import os, sys, time; open(os.path.join(sys.argv[1], '1'), 'w'); time.sleep(120)"
    wizard = subprocess.Popen([sys.executable, "-c", WIZARD, polite, str(births)])
    wait_until(lambda: count(births) == 1)
    keeper = supervisor_of(wizard.pid)
    os.kill(wizard.pid, signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    os.kill(wizard.pid, signal.SIGKILL)
    wizard.wait()
    wait_until(lambda: not marked(mark))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to hide /proc")
def test_nothing_is_left_where_proc_is_not_mounted(mark: str, births: Path) -> None:
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace can be made here")
    wizard = subprocess.Popen([*hidden, sys.executable, "-c", WIZARD, FAMILY, str(births)])
    wait_until(lambda: count(births) == 3)
    wizard.kill()
    wizard.wait()
    wait_until(lambda: not marked(mark))


def test_closed_terminal_leaves_no_process(mark: str, births: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests were started with nohup
        os.execv(sys.executable, [sys.executable, "-c", WIZARD, FAMILY, str(births)])
    wait_until(lambda: count(births) == 3)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGHUP
    wait_until(lambda: not marked(mark))


def test_wizard_that_ends_before_the_supervisor_starts_leaves_no_process(mark: str) -> None:
    """The other end of the socket is closed before the supervisor has started."""
    code = textwrap.dedent(
        """
        import asyncio, os, sys
        from ddpwizard.app.system import subprocesses as runner
        started = runner.subprocess.Popen
        def start_and_die(*args, **kwargs):
            started(*args, **kwargs)
            os._exit(9)
        runner.subprocess.Popen = start_and_die
        asyncio.run(runner.run_process([sys.executable, "-c", "import time; time.sleep(60)"], limit_s=60))
        """
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    wait_until(lambda: not marked(mark))


def test_children_that_replace_dead_siblings_are_ended(mark: str, births: Path) -> None:
    cancel_when([sys.executable, "-c", RESPAWNER, str(births)], lambda: count(births) >= 15)
    wait_until(lambda: not marked(mark))


def test_child_that_forks_and_exits_for_ever_is_ended(mark: str, births: Path) -> None:
    outcome = asyncio.run(run_process([sys.executable, "-c", HOPPER, str(births)], limit_s=60))
    assert count(births) == 1
    assert outcome.status == "ok"  # the first process of the chain ended with 0
    assert outcome.elapsed_s < GONE_WITHIN_S, "it ended by its own fuse, not by the supervisor"
    assert not marked(mark)


def test_supervisor_leaves_no_zombie(mark: str, births: Path) -> None:
    before = set(supervisor.descendants(os.getpid()))
    cancel_when([sys.executable, "-c", FAMILY, str(births)], lambda: count(births) == 3)
    wait_until(lambda: not marked(mark))

    def collected() -> bool:
        asyncio.run(run_process(["true"], limit_s=10))
        return set(supervisor.descendants(os.getpid())) <= before

    wait_until(collected)


def test_descendants_are_found_below_a_session_of_their_own(births: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", FAMILY, str(births)], start_new_session=True)
    try:
        wait_until(lambda: count(births) == 3)
        assert {int(path.name) for path in births.iterdir()} == {child.pid, *supervisor.descendants(child.pid)}
    finally:
        for pid in [child.pid, *supervisor.descendants(child.pid)]:
            os.kill(pid, signal.SIGKILL)
        child.wait()
