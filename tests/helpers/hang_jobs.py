"""Real jobs that hang, each with its expected verdict: how to start it and when it has reached the hang.

Lines of a script are named by the marker at their end; several lines may have the same marker if each is right.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.app.triage.types import JobReport
from helpers import job_starter
from helpers.hang_cases import HANGS, Hang
from helpers.jobs import SCRIPTS, RunningJob, free_port, running, running_as_forks, wait_for, wait_until_idle

STARTING_S = 120.0  # longer than triage is patient with a job that starts


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The expected verdict of a job. Lists hold alternatives; None accepts any value."""

    name: str
    states: list[str]
    causes: list[str | None]
    culprits: list[list[int]] | None
    where: list[str] | None
    branch: list[str | None] | None
    collective: list[str] | None
    tied: bool  # confidence below 0.5


class Standing(msgspec.Struct, frozen=True):
    """A job that has come to where it stays. ``pid`` is its launcher's, or its first process's."""

    job: RunningJob
    pid: int
    truth: Truth


def named(name: str) -> Hang:
    """The job of that name."""
    return next(hang for hang in HANGS if hang.name == name)


def command_of(hang: Hang, script: Path) -> list[str]:
    """The command line a person would type; for jobs started by hand, that of one rank."""
    interpreter = sys.executable
    scripts = Path(interpreter).parent
    target = [str(script), *hang.arguments]
    match hang.launcher:
        case "torchrun":
            return [interpreter, str(scripts / "torchrun"), "--standalone", f"--nproc-per-node={hang.ranks}", *target]
        case "module":
            options = ["--master-port", str(free_port()), "--nproc-per-node", str(hang.ranks)]
            return [interpreter, "-m", "torch.distributed.run", *options, *target]
        case "rendezvous":
            options = ["--nnodes=2", f"--nproc-per-node={hang.ranks}", "--rdzv-backend=c10d"]
            return [
                interpreter,
                str(scripts / "torchrun"),
                *options,
                f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                *target,
            ]
        case "python" | "by_hand":
            return [interpreter, *target]


@contextmanager
def standing(hang: Hang, directory: Path, *, may_fork: bool = False) -> Iterator[Standing]:
    """Start the job in ``directory`` from a copy of its scripts and wait until it has reached its final place.

    ``may_fork``: its processes may be forks of one that has imported torch.
    """
    script = _copied(hang, directory)
    command = command_of(hang, script)
    options = ["--terminal"] * hang.terminal + ["--service"] * hang.service
    options += ["--own-network"] * hang.cut
    environ = {"OMP_NUM_THREADS": "1", **({"GLOO_SOCKET_IFNAME": "lo"} if hang.cut else {})}
    if hang.launcher == "by_hand":
        ranks = hang.started if hang.started is not None else range(hang.ranks)
        options += ["--ranks", ",".join(map(str, ranks)), "--world", str(hang.ranks)]
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    start = [sys.executable, job_starter.__file__, *options, "--", *command]
    may_fork = may_fork and hang.launcher in ("torchrun", "module") and not (options or hang.own_interpreters)
    forks = running_as_forks(command, script, directory, **environ) if may_fork else None
    with forks or running(start, script, directory, **environ) as job:
        _wait_until_ready(hang, job)
        if hang.stop is not None:
            os.kill(job.ranks()[hang.stop], signal.SIGSTOP)
        if hang.cut:
            subprocess.run(["nsenter", "-t", str(job.pid), "-n", "ip", "link", "set", "lo", "down"], check=True)
        if hang.quiet:
            wait_until_idle(job)
        pid = next(proc.pid for proc in sorted(job.processes(), key=lambda p: p.pid) if proc.command == command)
        yield Standing(job, pid, truth_of(hang, script))


def truth_of(hang: Hang, script: Path) -> Truth:
    """The truth in terms of the copied files."""
    return Truth(
        name=hang.name,
        states=list(hang.states),
        causes=list(hang.causes),
        culprits=None if hang.culprits is None else [list(group) for group in hang.culprits],
        where=None if hang.where is None else _marked(script, hang.where),
        branch=None if hang.branch is None else ([None] if hang.branch == "" else [*_marked(script, hang.branch)]),
        collective=None if hang.collective is None else list(hang.collective),
        tied=hang.tied,
    )


def judged(there: Standing) -> JobReport:
    """Return the triage report of the job. A job that should hang and is still starting is sampled again."""
    until = time.monotonic() + STARTING_S
    while True:
        report = asyncio.run(triage_jobs(pid=there.pid))[0]
        waits = report.verdict.state == "starting" and "starting" not in there.truth.states
        if not waits or time.monotonic() > until:
            return report


def wrong(truth: Truth, report: JobReport) -> list[str]:
    """Return the wrong fields of a verdict as ``field: expected, got``."""
    verdict = report.verdict
    checks = {
        "state": (truth.states, verdict.state),
        "cause": (truth.causes, verdict.cause),
        "culprits": (truth.culprits, verdict.culprits),
        "where": (truth.where, verdict.where),
        "branch": (truth.branch, verdict.branch),
        "collective": (truth.collective, verdict.collective),
    }
    found = [
        f"{key}: {right}, got {got}" for key, (right, got) in checks.items() if right is not None and got not in right
    ]
    if truth.tied and verdict.confidence >= 0.5:
        found.append(f"confidence: below 0.5, got {verdict.confidence}")
    return found


def _wait_until_ready(hang: Hang, job: RunningJob) -> None:
    text, times = hang.ready
    try:
        wait_for(lambda: "".join(job.output).count(text) >= times, f"{hang.name} says {text!r} {times} times", 240)
    except AssertionError as late:
        raise AssertionError(f"{late}; it printed {list(job.output)[-12:]}") from None


def _copied(hang: Hang, directory: Path) -> Path:
    source = SCRIPTS / hang.script
    if source.parent == SCRIPTS:
        return Path(shutil.copy(source, directory / source.name))
    shutil.copytree(source.parent, directory, dirs_exist_ok=True)
    return directory / source.name


def _marked(script: Path, marker: str) -> list[str]:
    found = [
        f"{path}:{number}"
        for path in sorted(script.parent.glob("*.py"))
        for number, text in enumerate(path.read_text().splitlines(), 1)
        if text.rstrip().endswith(f"# {marker}")
    ]
    assert found, f"{script}: no line is marked {marker}"
    return found
