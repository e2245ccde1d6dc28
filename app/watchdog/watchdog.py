"""The watchdog of ``ddpwizard run``: starts the job as a child, hands signals on, notices that no rank moves or that
one died, has the job looked at, and tells. It is outside the job: whatever happens to it, the job goes on.
"""

import asyncio
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
from ..triage.sampling import worker_server
from . import progress
from .exit_events import ExitWatcher
from .terminate import terminate_job

TICK_S = 2.0
NOTICE_S = 0.2  # a rank that comes up is watched from then on: one may die before the next tick
DEATH_GRACE_S = 5.0  # what a launcher gets to end the others by itself
ASK_EVERY_S = 10.0  # for GPUs in use, and for the recorder where nothing else shows life
STOPPED_S = 30.0  # without a look of ours: more than a busy machine makes of TICK_S
AGAIN_S = 1.0  # the same signal within this time is handed on once: who signals a group reaches the job as well
LAUNCHERS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
HANDLED_SIGNALS = (*LAUNCHERS_SIGNALS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)
FROM_KERNEL = 0x80  # SI_KERNEL, asm-generic/siginfo.h: typed at the terminal, which gives it to the job too
TROUBLE = ("hung", "dead")


class Report(msgspec.Struct, frozen=True):
    """A look at the job, ready to be told: the state of its verdict, and the lines for people."""

    state: str
    lines: list[str]


class WatchdogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for. ``hang_after_s`` 0: never."""

    hang_after_s: float = 300.0
    then: Literal["keep", "stop"] = "keep"
    warn_signals: frozenset[int] = frozenset({signal.SIGUSR1})


Look = Callable[[int, str], Report]  # the pid to look at and why -> what is to be told
Say = Callable[[str], None]


def run_watchdog(
    command: Sequence[str], environ: Mapping[str, str], private: Path, wishes: WatchdogOptions, look: Look, say: Say
) -> tuple[int, bool]:
    """Run the job to its end: its exit code (128+n for a signal; 1 where it was ended because it hung), and whether
    there was anything to tell, so that the files are worth keeping.

    Raises:
        UserError: The command cannot be started.
    """
    taken = {number for number in HANDLED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    try:
        job = _Job(_started(command, environ, before), private, wishes, look, say)
        return job.watched(taken)
    finally:
        while signal.sigtimedwait(taken, 0):
            pass  # what came after the end is nobody's
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(command: Sequence[str], environ: Mapping[str, str], mask: Iterable[int]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, env=environ, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        )
    except FileNotFoundError:
        raise _refusal(f"{command[0]}: no such command", 127) from None
    except (OSError, ValueError) as error:
        raise _refusal(f"{command[0]} cannot be started: {getattr(error, 'strerror', None) or error}", 126) from None


def _refusal(message: str, code: int) -> UserError:
    error = UserError(message, "write the job's command after --, as you would without ddpwizard")
    error.exit_code = code
    return error


class _Job:
    """A job that runs, and what was noticed of it."""

    def __init__(
        self, child: subprocess.Popen[bytes], private: Path, wishes: WatchdogOptions, look: Look, say: Say
    ) -> None:
        self.child, self.private, self.wishes, self.look, self.say = child, private, wishes, look, say
        self.notes: dict[int, RankRecordFile] = {}
        self.counts: dict[int, progress.CounterSample] = {}
        self.moved_at = self.asked_at = self.ticked_at = time.monotonic()
        self.gpus: dict[int, bool] = {}  # pid -> whether it has one open; looked up again now and then
        self.handed_on: dict[int, float] = {}
        self.died: dict[int, float] = {}  # pid -> when it was noticed, of ranks that died while others went on
        self.looked_at_death = self.told_hang = self.ended_by_us = self.anything_told = self.failed = False
        self.then_signals: list[int] = []  # to be handed on when the look is over
        self.looking: Future[Report] | None = None
        self.last_told: Report | None = None
        self.pool = ThreadPoolExecutor(1)
        self.folder_seen_ns = 0
        self.exits = ExitWatcher()
        self.asked_to_end = False

    def watched(self, taken: set[signal.Signals]) -> tuple[int, bool]:
        next_tick = time.monotonic() + TICK_S
        while self.child.poll() is None:
            if came := signal.sigtimedwait(taken, NOTICE_S):
                self._signal(came)
            if self.looking and self.looking.done():
                self._told(self.looking.result())
            self._safely(self._read_notes)
            if time.monotonic() >= next_tick and not self.ended_by_us:
                self._safely(self._tick)
                next_tick = time.monotonic() + TICK_S
        if self.looking:
            self._told(self.looking.result())
        self.pool.shutdown()
        code = self.child.returncode if self.child.returncode >= 0 else 128 - self.child.returncode
        self._last_words(code)
        self.exits.close()
        return (1 if self.ended_by_us else code), self.anything_told

    def _signal(self, came: signal.struct_siginfo) -> None:
        number = came.si_signo
        if number == signal.SIGCHLD:
            return
        self.asked_to_end |= number in LAUNCHERS_SIGNALS
        if number in self.wishes.warn_signals:
            self._look(f"{signal.Signals(number).name} came")
            if number in LAUNCHERS_SIGNALS or _catches(self.child.pid, number):
                self.then_signals.append(number)
        elif came.si_code != FROM_KERNEL and time.monotonic() - self.handed_on.get(number, -AGAIN_S) >= AGAIN_S:
            self._hand_on(number)

    def _hand_on(self, number: int) -> None:
        self.handed_on[number] = time.monotonic()
        self.child.send_signal(number)

    def _safely(self, step: Callable[[], None]) -> None:
        """The job is waited for to its end, whatever goes wrong with watching it."""
        try:
            step()
        except Exception as error:
            if not self.failed:
                self.failed = True
                self.say(f"watching failed ({type(error).__name__}: {error}); the job goes on")

    def _tick(self) -> None:
        ranks = run_directory.live_records(self.notes.values())
        self._deaths(ranks)
        pids = [note.pid for note in ranks] or [self.child.pid, *descendants(self.child.pid)]
        now = time.monotonic()
        counts = self._counts(pids, now)
        stopped = now - self.ticked_at > STOPPED_S  # we ourselves, perhaps with the job: Ctrl-Z
        self.ticked_at = now
        if stopped or self._any_moved(counts):
            if self.told_hang:
                self.say(f"{_them(len(pids))} again: the job goes on")
            self.moved_at, self.told_hang = now, False
        self.counts = counts
        still_s = now - self.moved_at
        if self.wishes.hang_after_s and still_s >= self.wishes.hang_after_s and not self.told_hang:
            self.told_hang = True
            self._look(f"nothing of the job has moved for {still_s:.0f} s")

    def _read_notes(self) -> None:
        try:
            changed_ns = self.private.stat().st_mtime_ns
        except OSError:
            return
        if changed_ns != self.folder_seen_ns:
            self.folder_seen_ns = changed_ns
            self.notes = {
                each.pid: each for each in run_directory.read_records(self.private) if not launcher_name(each.command)
            }
            for pid in self.notes:
                self.exits.watch(pid)

    def _counts(self, pids: Sequence[int], now: float) -> dict[int, progress.CounterSample]:
        """The counters now; the recorder is asked only where they have shown no life for a while."""
        counts = {pid: progress.sample_counters(pid) for pid in pids}
        known = {pid: each.collectives for pid, each in self.counts.items()}
        if now - self.asked_at >= ASK_EVERY_S:
            self.asked_at = now
            self.gpus = {pid: procfs.has_gpu_open(pid) for pid in pids}
            if now - self.moved_at >= ASK_EVERY_S:
                known |= asyncio.run(_entered(self.private, pids))
        return {
            pid: msgspec.structs.replace(each, collectives=known.get(pid), gpu=self.gpus.get(pid, False))
            for pid, each in counts.items()
        }

    def _any_moved(self, counts: Mapping[int, progress.CounterSample]) -> bool:
        if counts.keys() - self.counts.keys():
            return True  # a process that was not there before
        return any(progress.has_progressed(self.counts[pid], now) for pid, now in counts.items())

    def _deaths(self, living: Sequence[RankRecordFile]) -> None:
        """Tell of a rank that died while others go on; have a look when its launcher does not end them."""
        here, back = {note.pid for note in living}, {note.rank for note in living}
        if self.asked_to_end:
            return
        for note in self.notes.values():
            gone = note.pid not in here and note.pid not in self.died
            if gone and here and self._ended_badly(note) and note.rank not in back:
                self.died[note.pid] = time.monotonic()
                others = f"{len(here)} other{'s' if len(here) > 1 else ''} still run{'s' if len(here) == 1 else ''}"
                self.say(f"{_name(note)} died ({self._how(note)}); {others}")
                self.anything_told = True
        waiting = [pid for pid, at in self.died.items() if time.monotonic() - at >= DEATH_GRACE_S]
        if waiting and here and not self.looked_at_death:
            self.looked_at_death = True
            self._look(f"{_name(self.notes[waiting[0]])} died and the others were not ended")

    def _look(self, why: str) -> None:
        if self.looking is None:
            self.say(f"{why}; looking at the job")
            self.looking = self.pool.submit(self._looked, why)

    def _looked(self, why: str) -> Report:
        try:
            return self.look(self.child.pid, why)
        except Exception as error:
            return Report("unknown", [f"the job could not be looked at: {type(error).__name__}: {error}"])

    def _told(self, told: Report) -> None:
        self.looking = None
        self.anything_told = True
        for line in told.lines if told != self.last_told else [f"as before: {told.state}"]:
            self.say(line)
        self.last_told = told
        if told.state not in TROUBLE:  # to be looked at again, where still nothing moves
            self.moved_at, self.told_hang = time.monotonic(), False
        for number in self.then_signals:
            self._hand_on(number)
        self.then_signals.clear()
        if self.wishes.then == "stop" and told.state in TROUBLE and self.child.poll() is None and not self.ended_by_us:
            self.ended_by_us = True
            self.say("ending the job (--then stop)")
            terminate_job(self.child, [note.pid for note in run_directory.live_records(self.notes.values())])

    def _last_words(self, code: int) -> None:
        """After a job that failed by itself: which rank was the first to end badly; and what still runs."""
        self._read_notes()
        if code and not self.asked_to_end and not self.ended_by_us:
            badly = [note for note in self.notes.values() if self._ended_at(note) and self._ended_badly(note)]
            first = min(badly, key=self._ended_at, default=None)
            if first and first.pid not in self.died:
                self.say(f"{_name(first)} died first: {self._how(first)}")
                self.anything_told = True
        if left := run_directory.live_records(self.notes.values()):
            self.say(f"still running: {', '.join(_name(note) for note in left)}")
            self.anything_told = True

    def _ended_at(self, note: RankRecordFile) -> float:
        """When it ended, as it says itself, else as it was seen; 0 where it lives or was killed unseen."""
        seen = self.exits.seen.get(note.pid)
        return note.ended_at or (seen.at if seen else 0.0)

    def _ended_badly(self, note: RankRecordFile) -> bool:
        seen = self.exits.seen.get(note.pid)
        return bool(seen.status) if seen and seen.status is not None else note.ended != "exit"

    def _how(self, note: RankRecordFile) -> str:
        seen = self.exits.seen.get(note.pid)
        error = "" if note.ended == "exit" else note.ended
        return error or (seen.how if seen else "") or "it left no word"


async def _entered(private: Path, pids: Sequence[int]) -> dict[int, int | None]:
    """How many collectives each rank's recorder counts, of those that answer."""
    sockets = {pid: path for pid in pids if (path := progress.find_worker_socket(private, pid))}
    answers = await asyncio.gather(
        *(worker_server.call_handler(path, worker_server.RECORD) for path in sockets.values())
    )
    return {pid: progress.count_collectives(said) for pid, said in zip(sockets, answers, strict=True) if said}


def _catches(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for this signal."""
    line = next(
        (line for line in proc_files.read_text_of(pid, "status").splitlines() if line.startswith("SigCgt:")),
        "SigCgt: 0",
    )
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


def _name(note: RankRecordFile) -> str:
    return f"rank {note.rank} (pid {note.pid})" if note.rank is not None else f"pid {note.pid}"


def _them(count: int) -> str:
    return "the process moves" if count == 1 else "the ranks move"
