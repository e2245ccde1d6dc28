"""The watchdog of ``ddpwizard run``: start the job as a child, forward signals, detect missing progress and dead ranks,
diagnose the job, and report. It is no part of the job: if it fails, the job continues.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import UserError
from ..launchers.recognise import launcher_name
from ..system import proc_files, procfs, run_directory
from ..system.run_directory import RankRecordFile
from ..system.supervisor import descendants
from ..text.units import seconds_text
from ..triage.sampling import worker_server
from . import progress
from .exit_events import ExitWatcher
from .terminate import terminate_job

TICK_S = 2.0
NOTICE_S = 0.2  # until a new rank is watched; it may die before the next tick
DEATH_GRACE_S = 5.0  # for the launcher to end the other ranks
ASK_EVERY_S = 10.0  # between checks of the GPUs in use, and of the recorder if no other counter shows progress
STOPPED_S = 30.0  # between two ticks: longer than on any busy machine, so this process was stopped
AGAIN_S = (
    1.0  # the same signal is forwarded once within this time: a signal to the process group reaches the job as well
)
LAUNCHERS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
HANDLED_SIGNALS = (*LAUNCHERS_SIGNALS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)
FROM_KERNEL = 0x80  # SI_KERNEL, asm-generic/siginfo.h: sent by the terminal, also to the job
TROUBLE = ("hung", "dead")


class Report(msgspec.Struct, frozen=True):
    """A diagnosis of the job: the state of its verdict, and the lines to print."""

    state: str
    lines: list[str]


class WatchdogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the user. ``hang_after_s`` 0 disables the detection of hangs."""

    hang_after_s: float = 300.0
    then: Literal["keep", "stop"] = "keep"
    warn_signals: frozenset[int] = frozenset({signal.SIGUSR1})


Diagnose = Callable[[int, str], Report]  # pid and reason -> report
WriteLine = Callable[[str], None]


def run_watchdog(
    command: Sequence[str],
    environ: Mapping[str, str],
    private: Path,
    options: WatchdogOptions,
    diagnose: Diagnose,
    write_line: WriteLine,
) -> tuple[int, bool]:
    """Run the job to its end. Return its exit code (128+n for a signal; 1 if it was ended because it hung) and whether
    anything was reported, so that the files are kept.

    Raises:
        UserError: The command cannot be started.
    """
    taken = {number for number in HANDLED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    try:
        job = _Job(_started(command, environ, before), private, options, diagnose, write_line)
        return job.run(taken)
    finally:
        while signal.sigtimedwait(taken, 0):
            pass  # signals after the end have no receiver
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(command: Sequence[str], environ: Mapping[str, str], mask: Iterable[int]) -> subprocess.Popen[bytes]:
    try:
        # Inherited descriptors (process substitution, a job server) belong to the job; our own are close-on-exec.
        return subprocess.Popen(
            command,
            env=environ,
            close_fds=False,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
        )
    except FileNotFoundError:
        raise _start_error(f"{command[0]}: no such command", 127) from None
    except (OSError, ValueError) as error:
        raise _start_error(
            f"{command[0]} cannot be started: {getattr(error, 'strerror', None) or error}", 126
        ) from None


def _start_error(message: str, code: int) -> UserError:
    error = UserError(message, "write the job's command after --, as you would without ddpwizard")
    error.exit_code = code
    return error


class _Job:
    """A running job and its observed state."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        private: Path,
        options: WatchdogOptions,
        diagnose: Diagnose,
        write_line: WriteLine,
    ) -> None:
        self.child, self.private, self.options = child, private, options
        self.diagnose, self.write_line = diagnose, write_line
        self.records: dict[int, RankRecordFile] = {}
        self.counts: dict[int, progress.CounterSample] = {}
        self.progress_at = self.asked_at = self.ticked_at = time.monotonic()
        self.gpus: dict[int, bool] = {}  # pid -> whether it has one open; refreshed every ASK_EVERY_S
        self.forwarded: dict[int, float] = {}
        self.died: dict[int, float] = {}  # pid -> time of detection, of ranks that died while others continued
        self.death_diagnosed = self.hang_reported = self.ended_by_us = self.anything_reported = self.failed = False
        self.then_signals: list[int] = []  # to forward after the diagnosis
        self.diagnosing: Future[Report] | None = None
        self.last_report: Report | None = None
        self.pool = ThreadPoolExecutor(1)
        self.directory_seen_ns = 0
        self.exits = ExitWatcher()
        self.asked_to_end = False

    def run(self, taken: set[signal.Signals]) -> tuple[int, bool]:
        next_tick = time.monotonic() + TICK_S
        while self.child.poll() is None:
            if received := signal.sigtimedwait(taken, NOTICE_S):
                self._signal(received)
            if self.diagnosing and self.diagnosing.done():
                self._report(self.diagnosing.result())
            self._safely(self._read_records)
            if time.monotonic() >= next_tick and not self.ended_by_us:
                self._safely(self._tick)
                next_tick = time.monotonic() + TICK_S
        if self.diagnosing:
            self._report(self.diagnosing.result())
        self.pool.shutdown()
        code = self.child.returncode if self.child.returncode >= 0 else 128 - self.child.returncode
        self._report_end(code)
        self.exits.close()
        return (1 if self.ended_by_us else code), self.anything_reported

    def _signal(self, received: signal.struct_siginfo) -> None:
        number = received.si_signo
        if number == signal.SIGCHLD:
            return
        self.asked_to_end |= number in LAUNCHERS_SIGNALS
        if number in self.options.warn_signals:
            self._start_diagnosis(f"{signal.Signals(number).name} received")
            if number in LAUNCHERS_SIGNALS or _catches(self.child.pid, number):
                self.then_signals.append(number)
        elif _is_for_us_alone(received) and time.monotonic() - self.forwarded.get(number, -AGAIN_S) >= AGAIN_S:
            self._forward(number)

    def _forward(self, number: int) -> None:
        self.forwarded[number] = time.monotonic()
        self.child.send_signal(number)

    def _safely(self, step: Callable[[], None]) -> None:
        """Run a step; an error in it never ends the wait for the job."""
        try:
            step()
        except Exception as error:
            if not self.failed:
                self.failed = True
                self.write_line(f"the watchdog failed ({type(error).__name__}: {error}); the job continues")

    def _tick(self) -> None:
        ranks = run_directory.live_records(self.records.values())
        self._report_deaths(ranks)
        pids = [record.pid for record in ranks] or [self.child.pid, *descendants(self.child.pid)]
        now = time.monotonic()
        counts = self._counts(pids, now)
        stopped = now - self.ticked_at > STOPPED_S  # this process, possibly with the job: Ctrl-Z
        self.ticked_at = now
        if stopped or self._any_progress(counts):
            if self.hang_reported:
                self.write_line(f"{_subject(len(pids))} again: the job continues")
            self.progress_at, self.hang_reported = now, False
        self.counts = counts
        still_s = now - self.progress_at
        if self.options.hang_after_s and still_s >= self.options.hang_after_s and not self.hang_reported:
            self.hang_reported = True
            self._start_diagnosis(f"no process of the job has made progress for {seconds_text(still_s, whole=True)}")

    def _read_records(self) -> None:
        try:
            changed_ns = self.private.stat().st_mtime_ns
        except OSError:
            return
        if changed_ns != self.directory_seen_ns:
            self.directory_seen_ns = changed_ns
            self.records = {
                each.pid: each for each in run_directory.read_records(self.private) if not launcher_name(each.command)
            }
            for pid in self.records:
                self.exits.watch(pid)

    def _counts(self, pids: Sequence[int], now: float) -> dict[int, progress.CounterSample]:
        """Return the current counters; the recorder is read only if they have shown no progress for a while."""
        counts = {pid: progress.sample_counters(pid) for pid in pids}
        known = {pid: each.collectives for pid, each in self.counts.items()}
        if now - self.asked_at >= ASK_EVERY_S:
            self.asked_at = now
            self.gpus = {pid: procfs.has_gpu_open(pid) for pid in pids}
            if now - self.progress_at >= ASK_EVERY_S:
                known |= asyncio.run(_entered(self.private, pids))
        return {
            pid: msgspec.structs.replace(each, collectives=known.get(pid), gpu=self.gpus.get(pid, False))
            for pid, each in counts.items()
        }

    def _any_progress(self, counts: Mapping[int, progress.CounterSample]) -> bool:
        if counts.keys() - self.counts.keys():
            return True  # a new process
        return any(progress.has_progressed(self.counts[pid], now) for pid, now in counts.items())

    def _report_deaths(self, living: Sequence[RankRecordFile]) -> None:
        """Report a rank that died while others continue; diagnose if the launcher does not end them."""
        here, back = {record.pid for record in living}, {record.rank for record in living}
        if self.asked_to_end:
            return
        for record in self.records.values():
            gone = record.pid not in here and record.pid not in self.died
            if gone and here and self._failed_exit(record) and record.rank not in back:
                self.died[record.pid] = time.monotonic()
                others = f"{len(here)} other{'s' if len(here) > 1 else ''} still run{'s' if len(here) == 1 else ''}"
                self.write_line(f"{_name(record)} died ({self._exit_text(record)}); {others}")
                self.anything_reported = True
        waiting = [pid for pid, at in self.died.items() if time.monotonic() - at >= DEATH_GRACE_S]
        if waiting and here and not self.death_diagnosed:
            self.death_diagnosed = True
            self._start_diagnosis(f"{_name(self.records[waiting[0]])} died and the other ranks were not ended")

    def _start_diagnosis(self, why: str) -> None:
        if self.diagnosing is None:
            self.write_line(f"{why}; diagnosing the job")
            self.diagnosing = self.pool.submit(self._run_diagnosis, why)

    def _run_diagnosis(self, why: str) -> Report:
        try:
            return self.diagnose(self.child.pid, why)
        except Exception as error:
            return Report("unknown", [f"the job could not be diagnosed: {type(error).__name__}: {error}"])

    def _report(self, report: Report) -> None:
        self.diagnosing = None
        self.anything_reported = True
        for line in report.lines if report != self.last_report else [f"unchanged: {report.state}"]:
            self.write_line(line)
        self.last_report = report
        if report.state not in TROUBLE:  # diagnose again if there is still no progress
            self.progress_at, self.hang_reported = time.monotonic(), False
        for number in self.then_signals:
            self._forward(number)
        self.then_signals.clear()
        if (
            self.options.then == "stop"
            and report.state in TROUBLE
            and self.child.poll() is None
            and not self.ended_by_us
        ):
            self.ended_by_us = True
            self.write_line("ending the job (--then stop)")
            terminate_job(self.child, [record.pid for record in run_directory.live_records(self.records.values())])

    def _report_end(self, code: int) -> None:
        """Report which rank failed first, unless the watchdog ended the job, and the ranks that still run."""
        self._read_records()
        if code and not self.asked_to_end and not self.ended_by_us:
            failed = [
                record for record in self.records.values() if self._ended_at(record) and self._failed_exit(record)
            ]
            first = min(failed, key=self._ended_at, default=None)
            if first and first.pid not in self.died:
                self.write_line(f"{_name(first)} died first: {self._exit_text(first)}")
                self.anything_reported = True
        if left := run_directory.live_records(self.records.values()):
            self.write_line(f"still running: {', '.join(_name(record) for record in left)}")
            self.anything_reported = True

    def _ended_at(self, record: RankRecordFile) -> float:
        """Return the end time from the rank's record, else the observed one; 0 if neither is known."""
        seen = self.exits.seen.get(record.pid)
        return record.ended_at or (seen.at if seen else 0.0)

    def _failed_exit(self, record: RankRecordFile) -> bool:
        seen = self.exits.seen.get(record.pid)
        return bool(seen.status) if seen and seen.status is not None else record.ended != "exit"

    def _exit_text(self, record: RankRecordFile) -> str:
        seen = self.exits.seen.get(record.pid)
        error = "" if record.ended == "exit" else record.ended
        return error or (seen.how if seen else "") or "no exit status"


def _is_for_us_alone(received: signal.struct_siginfo) -> bool:
    """Return whether the job did not get this signal as well.

    A terminal signals its whole foreground group, but its hang-up goes to the session leader only.
    """
    hung_up = received.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid()
    return received.si_code != FROM_KERNEL or hung_up


async def _entered(private: Path, pids: Sequence[int]) -> dict[int, int | None]:
    """Return the number of collectives in the recorder of each rank that answers."""
    sockets = {pid: path for pid in pids if (path := progress.find_worker_socket(private, pid))}
    answers = await asyncio.gather(
        *(worker_server.call_handler(path, worker_server.RECORD) for path in sockets.values())
    )
    return {pid: progress.count_collectives(answer) for pid, answer in zip(sockets, answers, strict=True) if answer}


def _catches(pid: int, number: int) -> bool:
    """Return whether the process has a handler for this signal."""
    line = next(
        (line for line in proc_files.read_text_of(pid, "status").splitlines() if line.startswith("SigCgt:")),
        "SigCgt: 0",
    )
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


def _name(record: RankRecordFile) -> str:
    return f"rank {record.rank} (pid {record.pid})" if record.rank is not None else f"pid {record.pid}"


def _subject(count: int) -> str:
    return "the process makes progress" if count == 1 else "the ranks make progress"
