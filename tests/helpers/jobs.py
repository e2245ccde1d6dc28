"""Real distributed jobs for tests, started under the supervisor, so that nothing outlives the test, even a killed one.

Also conditions to wait for instead of sleeping.
"""

import asyncio
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ddpwizard.app.system import procfs
from ddpwizard.app.system.subprocesses import ProcessOutcome, run_process
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.app.triage.types import JobReport
from helpers.forked_ranks import can_show
from helpers.torchrun_server import torchrun_running

SCRIPTS = Path(__file__).parent.parent / "real_jobs" / "scripts"
LIMIT_S = 900.0
STARTED_S = 300.0  # with the start of the process that is forked
IDLE_TICKS = 4  # of 1/100 s: what the processes of an idle job use up in one second, at most
IDLE_CHECKS, IDLE_GAP_S = 10, 0.1
IDLE_LIMIT_S = 240.0
MARK = "DDPWIZARD_TEST_JOB"  # in the environment of every process of a job, to know them by
T = TypeVar("T")


class RunningJob:
    """A job that runs: ``pid`` is the launcher's (or the single process's), ``output`` the last it printed."""

    def __init__(self, command: Sequence[str], script: Path, mark: str) -> None:
        self.command, self.script, self.mark = list(command), script, mark
        self.pid = 0
        self.lines: deque[str] = deque(maxlen=400)
        self.log: Path | None = None

    @property
    def output(self) -> list[str]:
        """The last lines of its output."""
        return self.log.read_text(errors="replace").splitlines(keepends=True) if self.log else list(self.lines)

    def processes(self) -> list[procfs.Proc]:
        """Return all living processes of the job without the supervisor."""
        mark = f"{MARK}={self.mark}\0".encode()
        found = [procfs.process_of(int(entry.name)) for entry in os.scandir("/proc") if _has(entry, mark)]
        return [proc for proc in found if proc and not any("supervisor.py" in word for word in proc.command)]

    def ranks(self) -> dict[int, int]:
        """Rank to pid, of the ranks that live."""
        ranks = [proc for proc in self.processes() if "RANK" in proc.environ and str(self.script) in proc.command]
        return {int(proc.environ["RANK"]): proc.pid for proc in sorted(ranks, key=lambda proc: -proc.pid)}

    def line(self, marker: str) -> str:
        """``path:line`` of the line that ends with ``# marker``."""
        return line_of(self.script, marker)

    def printed(self, text: str) -> bool:
        """Return whether any line of its output contains the text."""
        return any(text in line for line in self.output)


def _has(process: "os.DirEntry[str]", mark: bytes) -> bool:
    """Return whether the environment of a process contains the mark; all else of other processes is not read."""
    try:
        return process.name.isdigit() and mark in Path(process.path, "environ").read_bytes()
    except OSError:
        return False


def line_of(script: Path, marker: str) -> str:
    """``path:line`` of the only line of a script that ends with ``# marker``."""
    lines = [n for n, text in enumerate(script.read_text().splitlines(), 1) if text.rstrip().endswith(f"# {marker}")]
    assert len(lines) == 1, f"{script}: {len(lines)} lines are marked {marker}"
    return f"{script}:{lines[0]}"


def torchrun(script: Path, ranks: int = 4, *arguments: str) -> list[str]:
    """The command line of ``torchrun --standalone``."""
    options = ["--standalone", f"--nproc-per-node={ranks}"]
    return [sys.executable, "-m", "torch.distributed.run", *options, str(script), *arguments]


@contextmanager
def running(command: Sequence[str], script: Path, directory: Path, **environ: str) -> Iterator[RunningJob]:
    """Run ``command`` in ``directory``; at the end it and all its descendants are ended and gone."""
    job = RunningJob(command, script, secrets.token_hex(8))
    loop = asyncio.new_event_loop()
    env = {**os.environ, **environ, MARK: job.mark}
    task: asyncio.Task[ProcessOutcome] = loop.create_task(
        run_process(command, limit_s=LIMIT_S, env=env, cwd=directory, on_output=job.lines.append)
    )
    thread = threading.Thread(target=_drive, args=(loop, task), daemon=True)
    thread.start()
    try:
        job.pid = wait_for(
            lambda: next((proc.pid for proc in job.processes() if proc.command == job.command), None),
            f"{command} is there: {list(job.output)}",
        )
        yield job
    finally:
        with suppress(RuntimeError):  # the loop is closed where the job has ended by itself
            loop.call_soon_threadsafe(task.cancel)
        thread.join(timeout=30)
        wait_for(lambda: not job.processes(), f"nothing of {command} is left")


@contextmanager
def running_as_forks(command: Sequence[str], script: Path, directory: Path, **environ: str) -> Iterator[RunningJob]:
    """Run a command of torchrun as ``running`` does, its processes as forks of one that has imported torch."""
    if not can_show():
        with running(command, script, directory, **environ) as job:
            yield job
        return
    job = RunningJob(command, script, secrets.token_hex(8))
    environ = {**os.environ, **environ, MARK: job.mark}
    with torchrun_running(command, directory=directory, environ=environ) as job.log:
        try:
            job.pid = wait_for(
                lambda: next((proc.pid for proc in job.processes() if proc.command == job.command), None),
                f"{command} is there",
                STARTED_S,
            )
            yield job
        finally:
            for proc in job.processes():
                with suppress(ProcessLookupError):
                    os.kill(proc.pid, signal.SIGKILL)
    wait_for(lambda: not job.processes(), f"nothing of {command} is left")


def _drive(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[ProcessOutcome]") -> None:
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()


@contextmanager
def launched(name: str, directory: Path, ranks: int = 4, *arguments: str) -> Iterator[RunningJob]:
    """Run ``tests/jobs/scripts/<name>`` under torchrun, from a copy in ``directory``."""
    script = directory / name
    script.write_text((SCRIPTS / name).read_text())
    with running(torchrun(script, ranks, *arguments), script, directory) as job:
        yield job


@contextmanager
def launched_as_forks(name: str, directory: Path, ranks: int = 4, *arguments: str) -> Iterator[RunningJob]:
    """Run a script as ``launched`` does, its processes as forks of one that has imported torch."""
    script = directory / name
    script.write_text((SCRIPTS / name).read_text())
    with running_as_forks(torchrun(script, ranks, *arguments), script, directory, OMP_NUM_THREADS="1") as job:
        yield job


@contextmanager
def by_hand(name: str, directory: Path, ranks: int = 4, *, own_logs: bool = False) -> Iterator[RunningJob]:
    """Run a script as plain processes with RANK and its kin set by hand: no launcher above them.

    ``own_logs``: each rank writes to a file of its own, rank0.log and so on.
    """
    script = directory / name
    script.write_text((SCRIPTS / name).read_text())
    start = (
        "import os, subprocess, sys\n"
        "world, script, logs = sys.argv[1:]\n"
        "ranks = [subprocess.Popen([sys.executable, script], env={**os.environ, 'RANK': str(r), 'LOCAL_RANK': str(r),"
        " 'WORLD_SIZE': world}, stdout=open(f'rank{r}.log', 'wb') if logs == 'own' else None,"
        " stderr=subprocess.STDOUT if logs == 'own' else None) for r in range(int(world))]\n"
        "[rank.wait() for rank in ranks]\n"
    )
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    words = [sys.executable, "-c", start, str(ranks), str(script), "own" if own_logs else "shared"]
    with running(words, script, directory, **place) as job:
        yield job


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], T | None], what: str, limit_s: float = 120.0) -> T:
    """The first true value of ``condition``; fails when it does not come within the limit."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {limit_s:.0f} s: {what}")


def wait_until_idle(job: RunningJob) -> None:
    """Wait until no process of the job uses the CPU: it has come to where it hangs."""
    try:
        wait_for(lambda: _idle(job), f"{job.script} is idle", IDLE_LIMIT_S)
    except AssertionError as late:
        raise AssertionError(f"{late}; it printed {list(job.output)[-12:]}") from None


def hung_report(job: RunningJob, pid: int | None = None) -> JobReport:
    """Return the report of a job that hangs, sampled once its processes are idle. ``pid`` selects it (default: its
    launcher's)."""
    wait_until_idle(job)
    return triage_until(pid or job.pid, "hung")


def triage_until(pid: int, state: str, limit_s: float = 300.0) -> JobReport:
    """Sample the job of ``pid`` until its verdict has that state (it starts, then hangs)."""
    until = time.monotonic() + limit_s
    while True:
        report = asyncio.run(triage_jobs(pid=pid))[0]
        if report.verdict.state == state:
            return report
        assert time.monotonic() < until, f"{report.verdict} {[(r.rank, r.state, r.where) for r in report.ranks]}"


def _idle(job: RunningJob) -> bool:
    """Return whether no process of the job runs or is runnable during a second in which this process ran."""
    ticks = [_ticks(job)]
    for _ in range(IDLE_CHECKS):
        time.sleep(IDLE_GAP_S)
        ticks.append(_ticks(job))
    before, after = ticks[0], ticks[-1]
    if before is None or after is None or None in ticks:
        return False
    return before.keys() == after.keys() and sum(after.values()) - sum(before.values()) <= IDLE_TICKS


def _ticks(job: RunningJob) -> dict[int, int] | None:
    """The CPU time of each process so far; None while one of them runs or waits for its turn."""
    found: dict[int, int] = {}
    for proc in job.processes():
        try:
            fields = Path(f"/proc/{proc.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "R":
            return None
        found[proc.pid] = int(fields[11]) + int(fields[12])
    return found
