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
from typing import Literal, Protocol

import msgspec

from ..errors import UserError
from ..launchers.recognise import launcher_name
from ..system import procfs, run_directory
from ..system.run_directory import RankRecordFile
from ..system.supervisor import descendants
from ..system.terminate import terminate_processes
from ..text.units import seconds_text
from ..triage.sampling import worker_server
from . import progress, signals
from .ended_ranks import EndedRank, first_ended, rank_name, without_traceback
from .error_copier import ErrorCopier
from .exit_events import ExitWatcher

TICK_S = 2.0
NOTICE_S = 0.2  # until a new rank is watched; it may die before the next tick
DEATH_GRACE_S = 5.0  # for the launcher to end the other ranks
ASK_EVERY_S = 10.0  # between checks of the GPUs in use, and of the recorder if no other counter shows progress
STOPPED_S = 30.0  # between two ticks: longer than on any busy machine, so this process was stopped
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


WriteText = Callable[[str], None]  # one message; its further lines belong to it


class Diagnosis(Protocol):
    """Diagnosis of the job, as the watchdog needs it."""

    def diagnose_job(self, pid: int, why: str) -> Report:
        """Inspect the running job of ``pid``."""
        ...

    def diagnose_crash(self, ended: Sequence[EndedRank], first: EndedRank) -> list[str]:
        """Return the diagnosis of a job that has ended with an error, which began with the end of ``first``."""
        ...

    def shows_lost_rank(self, error: str) -> bool:
        """Return whether an error shows only that another rank is gone or does not answer."""
        ...


def run_watchdog(
    command: Sequence[str],
    environ: Mapping[str, str],
    private: Path,
    options: WatchdogOptions,
    diagnosis: Diagnosis,
    write: WriteText,
) -> tuple[int, bool]:
    """Run the job to its end. Return its exit code (128+n for a signal; 1 if it was ended because it hung) and whether
    anything was reported, so that the files are kept.

    Raises:
        UserError: The command cannot be started.
    """
    taken = {number for number in signals.HANDLED if signal.getsignal(number) is not signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    copier = ErrorCopier(private)
    try:
        job = _Job(command, _started(command, environ, taken, before), private, options, diagnosis, write)
        write(_start_text(options))
        return job.run(taken, copier)
    finally:
        copier.close()
        while signal.sigtimedwait(taken, 0):
            pass  # signals after the end have no receiver
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(
    command: Sequence[str], environ: Mapping[str, str], taken: Iterable[int], mask: Iterable[int]
) -> subprocess.Popen[bytes]:
    def prepare_child() -> None:
        for number in taken:  # one that arrived since the fork ends the child like the command itself
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        # Inherited descriptors (process substitution, a job server) belong to the job; our own are close-on-exec.
        return subprocess.Popen(
            command,
            env=environ,
            close_fds=False,
            preexec_fn=prepare_child,
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
        command: Sequence[str],
        child: subprocess.Popen[bytes],
        private: Path,
        options: WatchdogOptions,
        diagnosis: Diagnosis,
        write: WriteText,
    ) -> None:
        self.command, self.child, self.private, self.options = command, child, private, options
        self.diagnosis, self.write = diagnosis, write
        self.records: dict[int, RankRecordFile] = {}
        self.launchers: list[RankRecordFile] = []  # that an error ended
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

    def run(self, taken: set[signal.Signals], copier: ErrorCopier) -> tuple[int, bool]:
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
        copier.wait_for_output()
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
        self.asked_to_end |= number in signals.ENDING
        if number in self.options.warn_signals:
            self._start_diagnosis(f"{signal.Signals(number).name} received")
            if number in signals.ENDING or signals.has_handler(self.child.pid, number):
                self.then_signals.append(number)
        elif (
            signals.is_for_us_alone(received)
            and time.monotonic() - self.forwarded.get(number, -signals.AGAIN_S) >= signals.AGAIN_S
        ):
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
                self.write(f"the watchdog failed ({type(error).__name__}: {error}); the job continues")

    def _tick(self) -> None:
        ranks = run_directory.live_records(self.records.values())
        self._report_deaths(ranks)
        pids = [record.pid for record in ranks] or [self.child.pid, *descendants(self.child.pid)]
        now = time.monotonic()
        counts = self._counts(pids, now)
        stopped = now - self.ticked_at > STOPPED_S  # this process, possibly with the job: Ctrl-Z
        self.ticked_at = now
        if stopped or self._any_progress(counts):
            if self.hang_reported and not self.asked_to_end:
                self.write(f"{_subject(len(pids))} again: the job continues")
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
            found = run_directory.read_records(self.private)
            self.records = {each.pid: each for each in found if not launcher_name(each.command)}
            self.launchers = [each for each in found if launcher_name(each.command)]
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
            gone = self._ended(record) if record.pid not in here and record.pid not in self.died else None
            if gone and here and gone.failed and record.rank not in back:
                self.died[record.pid] = time.monotonic()
                others = f"{len(here)} other{'s' if len(here) > 1 else ''} still run{'s' if len(here) == 1 else ''}"
                self.write(f"{gone.name} died ({_hang_indent(gone.reason)}); {others}")
                self.anything_reported = True
        waiting = [pid for pid, at in self.died.items() if time.monotonic() - at >= DEATH_GRACE_S]
        if waiting and here and not self.death_diagnosed:
            self.death_diagnosed = True
            self._start_diagnosis(f"{rank_name(self.records[waiting[0]])} died and the other ranks were not ended")

    def _start_diagnosis(self, why: str) -> None:
        if self.diagnosing is None:
            self.write(f"{why}; diagnosing the job")
            self.diagnosing = self.pool.submit(self._run_diagnosis, why)

    def _run_diagnosis(self, why: str) -> Report:
        try:
            return self.diagnosis.diagnose_job(self.child.pid, why)
        except Exception as error:
            return Report("unknown", [f"the job could not be diagnosed: {type(error).__name__}: {error}"])

    def _report(self, report: Report) -> None:
        self.diagnosing = None
        self.anything_reported = True
        self.write("\n".join(report.lines) if report != self.last_report else f"unchanged: {report.state}")
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
            self.write("ending the job (--then stop)")
            ranks = [record.pid for record in run_directory.live_records(self.records.values())]
            terminate_processes([self.child.pid], ranks)

    def _report_end(self, code: int) -> None:
        """Report which rank failed first and why, unless the watchdog ended the job, and the ranks that still run."""
        self._read_records()
        if code and not self.asked_to_end and not self.ended_by_us:
            living = {record.pid for record in run_directory.live_records(self.records.values())}
            records = self.records or {each.pid: each for each in self.launchers}
            ended = [self._ended(record) for pid, record in records.items() if pid not in living]
            if first := first_ended(ended, self.diagnosis.shows_lost_rank):
                self.anything_reported = True
                if first.record.pid not in self.died:
                    self.write(f"{first.name} {first.end}: {_hang_indent(first.reason)}")
                self._safely(lambda: self.write("\n".join(self.diagnosis.diagnose_crash(ended, first))))
            elif not self.records and launcher_name(self.command):
                self.write(
                    f"the job ended with code {code} before a rank used torch.distributed, and no error was recorded"
                    " → add 2>&1 | ddpwizard diagnose - to the command"
                )
        if left := run_directory.live_records(self.records.values()):
            self.write(f"still running: {', '.join(rank_name(record) for record in left)}")
            self.anything_reported = True

    def _ended(self, record: RankRecordFile) -> EndedRank:
        return EndedRank(record, self.exits.seen.get(record.pid))


async def _entered(private: Path, pids: Sequence[int]) -> dict[int, int | None]:
    """Return the number of collectives in the recorder of each rank that answers."""
    sockets = {pid: path for pid in pids if (path := progress.find_worker_socket(private, pid))}
    answers = await asyncio.gather(
        *(worker_server.call_handler(path, worker_server.RECORD) for path in sockets.values())
    )
    return {pid: progress.count_collectives(answer) for pid, answer in zip(sockets, answers, strict=True) if answer}


def _hang_indent(text: str) -> str:
    return without_traceback(text.strip()).replace("\n", "\n  ")


def _subject(count: int) -> str:
    return "the process makes progress" if count == 1 else "the ranks make progress"


def _start_text(options: WatchdogOptions) -> str:
    """Return the line at the start of a job: what makes the watchdog diagnose it."""
    after = f"after {seconds_text(options.hang_after_s, whole=True)} without progress" if options.hang_after_s else ""
    warning = next(iter(sorted(options.warn_signals)), None)
    at_once = f"on kill -{signal.Signals(warning).name.removeprefix('SIG')} {os.getpid()}" if warning else ""
    return f"watching; diagnoses {', or '.join(filter(None, (after, at_once))) or 'when a rank dies'}"
