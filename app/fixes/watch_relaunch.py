"""Watch a job that was started again: its ranks pass the line, hang again, or the run ends."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from ..jobs import discover
from ..jobs.types import Job
from ..logs.tracebacks import LIBRARY
from ..session import Outcome
from ..system import procfs
from ..system.subprocesses import ProcessOutcome
from ..text.units import seconds_text
from ..triage import phrases
from ..triage.rank_activity.frames import user_frames
from ..triage.sampling import stacks
from ..triage.sampling.sampler import build_observation
from ..triage.types import Sample
from ..triage.verdict import judge_job
from .progress_check import ProgressCheck
from .proof_limit import SETTING

Progress = Callable[[str], None]
MARK = "DDPWIZARD_PROOF"  # in the environment of the relaunched job, to recognise its processes
SAMPLE_INTERVAL_S = 1.0
# A new hang is reported after this time without progress (seconds) at this confidence: ranks that contradict
# each other will not recover, a rank that only waits may still continue.
HUNG_AFTER = ((2.0, 0.7), (12.0, 0.0))
WAITS = {
    "job.rank-in-loader",
    "job.rank-waits-for-person",
    "job.rank-waits-for-service",
    "job.rank-waits-for-itself",
    "job.rank0-alone-at-work",
    "job.rank-leaving",
    "job.waiting-at-init",
}
END_TIMEOUT_S = 10.0
TORCHRUN_SUMMARY = "torch/distributed/elastic/"
# Messages of torch's libraries that are no error, perhaps behind the name of a rank ("[W1122 17:03:11.1 socket.cpp:2]",
# "W1122 17:03:11.123000 4711 torch/…"), and Python's warnings.
LIBRARY_LINE = re.compile(r"^(?:\[?(?:rank)?\d*\]?:? ?)?\[?[IW]\d{4} \d\d:\d\d:\d\d|^\S+:\d+: \w*Warning: ")
RANK_LINE = re.compile(r"(\[\w+\]: ?)?(.*)")
NOTICE = re.compile(r"^\*{5,}\s*$")
LAST_LINES = 6
# A thread of gloo that releases a tensor while Python is finalised is ended by Python, and the C++ runtime aborts the
# process (torch 2.13, pytorch pull request 179291).
ABORTED_AT_EXIT = "terminate called without an active exception"
ERROR_OF_SCRIPT = "Traceback (most recent call last)"
# What faulthandler prints of the thread in which a signal ended the process.
NAME_SIGNALS = {"PYTHONFAULTHANDLER": "1"}
FATAL_HEAD = "Fatal Python error: "
FATAL = re.compile(
    FATAL_HEAD + r"(?P<what>[^\n]{1,80})\n(?:[^\n]{0,300}\n){0,200}?"
    r"Current thread [^\n]{0,100}\n(?P<stack>(?: +File [^\n]{1,1000}\n)+)"
)
FATAL_FRAME = re.compile(r' +File "(?P<file>[^"\n]+)", line (?P<line>\d+) in ')


class RunResult(NamedTuple):
    """The end of a watched run: its outcome for a job that was wrong before, one line, and the last lines printed."""

    outcome: Outcome
    what: str
    detail: str
    failed_code: int | None = None
    aborted_at_exit: bool = False  # by torch, after the script of a rank had ended


async def watch(
    task: "asyncio.Task[ProcessOutcome]", check: ProgressCheck | None, mark: str, ranks: int, steady_s: float,
    report_progress: Progress,
) -> RunResult:  # fmt: skip
    """Sample the relaunched ranks until they have passed, hang again, or the run is over.

    Without a ``check`` only the end of the run counts. ``steady_s``: the ranks have to keep moving for this long.
    """
    began = time.monotonic()
    samples: list[tuple[Job, dict[int, Sample]]] = []
    while not task.done():
        await asyncio.wait([task], timeout=SAMPLE_INTERVAL_S)
        job = _relaunched_job(mark)
        if task.done():
            continue
        if job is None:
            report_progress("started, no rank is there yet")
            continue
        sample = await stacks.sample_stacks(job.processes)
        samples = [(j, s) for j, s in samples if s.keys() == sample.keys()] + [(job, sample)]
        if hung := _hung(samples):
            return RunResult("still there", f"it hangs again: {hung}", "")
        if check is None:
            report_progress(f"{_count(len(job.processes), ranks)} started")
            continue
        check.see({p.rank: user_frames(sample[p.pid].stack) for p in job.processes if p.rank is not None})
        ran_s = time.monotonic() - began
        report_progress(_progress_text(check, job, ranks, ran_s, steady_s))
        if len(check.passed) == ranks and (not check.in_loop or ran_s >= steady_s):
            what = f"every rank got past {phrases.short_place(check.line)}"
            longer = f" and kept moving for {seconds_text(ran_s, whole=True)}" if check.in_loop and steady_s else ""
            return RunResult("proved", what + longer, "the job was ended after that")
    return _result_of(task.result(), check, ranks)


async def wait_until_gone(mark: str) -> None:
    """Wait until no process of the run is left."""
    until = time.monotonic() + END_TIMEOUT_S
    while _has_processes(mark) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def last_lines(log: str) -> str:
    """Return the last own lines of the ranks, without frames, messages of torch's libraries and torchrun's summary."""
    own: list[str] = []
    in_frames: dict[str, bool] = {}  # by the name of a rank before its lines
    in_notice = False  # between two lines of asterisks
    for line in log.splitlines():
        if TORCHRUN_SUMMARY in line and not LIBRARY_LINE.match(line):
            break
        if NOTICE.match(line):
            in_notice = not in_notice
        elif line.strip() and not in_notice and not LIBRARY_LINE.match(line):
            rank, text = _rank_and_text(line)
            in_frames[rank] = text.startswith(ERROR_OF_SCRIPT) or (in_frames.get(rank, False) and text[:1] == " ")
            own += [] if in_frames[rank] else [line]
    return "\n".join(own[-LAST_LINES:])


def _rank_and_text(line: str) -> tuple[str, str]:
    found = RANK_LINE.match(line)
    return (found[1] or "", found[2]) if found else ("", line)


def _result_of(outcome: ProcessOutcome, check: ProgressCheck | None, ranks: int) -> RunResult:
    printed = last_lines(outcome.log)
    if outcome.status == "ok":
        return RunResult("proved", "the job ran to its end with code 0", printed)
    if outcome.status == "timed_out":
        seen = "it neither failed nor hung"
        if check:
            place = phrases.short_place(check.line)
            seen += f"; {len(check.passed)} of {ranks} ranks were seen past {place}"
        limit = seconds_text(outcome.elapsed_s, whole=True)
        return RunResult("not shown here", f"not finished within its limit of {limit}; {SETTING}", seen)
    if ABORTED_AT_EXIT in outcome.log and ERROR_OF_SCRIPT not in outcome.log.partition(ABORTED_AT_EXIT)[0]:
        what = "torch aborted a rank while Python was exiting: a thread of gloo still ran, a fault of torch"
        return RunResult("not shown here", what, printed, outcome.code, aborted_at_exit=True)
    ended = f"the job ended with code {outcome.code}"
    if crash := crash_of_signal(outcome.log):
        ended, printed = f"{ended}: {crash}", last_lines(outcome.log[: outcome.log.index(FATAL_HEAD)])
    return RunResult("not shown here", ended, printed, outcome.code)


def crash_of_signal(log: str) -> str:
    """Return the signal that ended a rank and its line of the user's code, as ``Segmentation fault at train.py:31``."""
    found = FATAL.search(log)
    frames = FATAL_FRAME.findall(found["stack"]) if found else []
    own = next(((file, line) for file, line in frames if not LIBRARY.search(file)), None)
    if found is None or own is None:
        return ""
    return f"{found['what']} at {phrases.short_place(f'{own[0]}:{own[1]}')}"


def _progress_text(check: ProgressCheck, job: Job, ranks: int, ran_s: float, steady_s: float) -> str:
    """Return a line such as ``ranks 1–3 past train.py:38, waiting for rank 0``."""
    here = {process.rank for process in job.processes if process.rank is not None}
    if not check.line:
        return f"{_count(len(here), ranks)} started"
    place = phrases.short_place(check.line)
    if not check.passed:
        return f"{_count(len(here), ranks)} started, none past {place} yet"
    left = sorted(set(range(ranks)) - check.passed)
    if left:
        return f"{phrases.ranks_phrase(sorted(check.passed))} past {place}, waiting for {phrases.ranks_phrase(left)}"
    return f"all ranks past {place}; watching until {seconds_text(steady_s, whole=True)} ({ran_s:.0f} s now)"


def _count(number: int, ranks: int) -> str:
    return f"{number} of {ranks} ranks" if ranks else f"{number} ranks"


def _hung(samples: list[tuple[Job, dict[int, Sample]]]) -> str:
    """Return why the relaunched job hangs, or "" while it does not."""
    job, last = samples[-1]
    for still_s, sure in HUNG_AFTER:
        first = next(
            (sample for _, sample in reversed(samples) if _sample_time(last) - _sample_time(sample) >= still_s), None
        )
        if first is None:
            return ""
        verdict = judge_job(build_observation(job, [first, last])).verdict
        if sure and not WAITS.isdisjoint(verdict.findings):
            continue
        if verdict.state == "hung" and verdict.confidence >= sure:
            return verdict.why
    return ""


def _sample_time(sample: dict[int, Sample]) -> float:
    return next(iter(sample.values())).at if sample else 0.0


def _relaunched_job(mark: str) -> Job | None:
    found = discover.find_jobs()
    return next((job for job in found if any(p.environ.get(MARK) == mark for p in job.processes)), None)


def _has_processes(mark: str) -> bool:
    return any(proc.environ.get(MARK) == mark for proc in procfs.all_processes().values())


def is_relaunched(job: Job) -> bool:
    """Return whether a job was started to prove a fix."""
    launcher = procfs.process_of(job.launcher_pid) if job.launcher_pid else None
    environs = [process.environ for process in job.processes] + ([dict(launcher.environ)] if launcher else [])
    return any(MARK in environ for environ in environs)
