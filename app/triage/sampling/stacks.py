"""Take one sample of every rank: its Python stacks by py-spy, without pausing the process, and its resource counters.

If the kernel denies py-spy, a rank started by ``ddpwizard run`` is read through its worker socket.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from ...errors import InspectionError
from ...jobs.types import Process
from ...system import procfs, ptrace, pyspy, pyspy_batch
from ...system.pyspy import SpyFrame, SpyLocal, SpyThread
from ...system.subprocesses import run_process
from ...text import redact
from ...training_script.frame import StackFrame
from ..types import LocalsFrame, LocalsStack, Sample, ThreadStack
from . import worker_server

LIMIT_S = 8.0  # for one process; large jobs are read in batches
WORKER_LIMIT_S = 2.0
START_S = 5.0  # for starting the child process that reads them
OTHERS = 50  # threads other than the main one
MAX_INNERMOST_FRAMES, MAX_OUTERMOST_FRAMES = 250, 50  # frames kept of a deeper stack
VALUE_LENGTH = 80
GONE = "the process has ended"
STOPPED = ("T", "t")  # does not answer
OUTERMOST = ("<module>", "_run_module_as_main")  # the functions that a main thread starts with
REREADS = 3  # of a stack that changed while it was read


class StackDump(msgspec.Struct, frozen=True):
    """The threads of a process, or the problem of reading them."""

    threads: list[SpyThread] = []
    problem: str = ""
    refused: bool = False  # by the kernel


class _Answer(msgspec.Struct):
    pid: int
    out: str
    error: str
    timed_out: bool


async def sample_stacks(processes: Sequence[Process], *, may_pause: bool = False) -> dict[int, Sample]:
    """Sample each process once: pid to sample. ``problem`` of a sample: what could not be read.

    ``may_pause`` allows py-spy to stop a process while it is read (some milliseconds).
    """
    samples = {process.pid: _counters(process.pid) for process in processes}
    alive = [process for process in processes if samples[process.pid].problem != GONE]
    dumps = await dump_stacks([process.pid for process in alive], may_pause=may_pause)
    for _ in range(REREADS):
        inconsistent = [
            pid for pid, dump in dumps.items() if samples[pid].process_state == "R" and _is_inconsistent(dump, pid)
        ]
        dumps |= await dump_stacks(inconsistent, may_pause=may_pause)
    answers = dict(
        await asyncio.gather(*(_ask(process, samples[process.pid]) for process in alive if dumps[process.pid].problem))
    )
    for process in alive:
        dump = dumps[process.pid]
        sample = samples[process.pid]
        if answer := answers.get(process.pid):
            stack, others = answer
            samples[process.pid] = msgspec.structs.replace(
                sample, stack=stack, others=others[:OTHERS], threads=len(others) + 1
            )
            continue
        main, others = split_threads(dump.threads, process.pid)
        samples[process.pid] = msgspec.structs.replace(
            sample,
            stack=_frames(main, process.cwd) if main else [],
            # In another pid namespace py-spy does not know the state of a thread.
            runs=main.active if main and main.os_thread_id == process.pid else None,
            owns_gil=bool(main and main.owns_gil),
            others=[_thread(thread, process) for thread in others[:OTHERS]],
            threads=len(dump.threads) or sample.threads,
            problem=dump.problem,
        )
    return samples


async def locals_of(pid: int) -> list[LocalsStack]:
    """Read the stacks of one process with local variables, the main thread first.

    Raises:
        InspectionError: Access is denied, or the process has ended.
    """
    proc = procfs.process_of(pid)
    if proc is None:
        raise InspectionError(f"pid {pid}: {GONE}", "sample the job again")
    dump = (await dump_stacks([pid], options=["--locals"]))[pid]
    if dump.problem:
        raise InspectionError(f"pid {pid}: {dump.problem}", "read the stacks without local variables")
    main, others = split_threads(dump.threads, pid)
    return [
        LocalsStack(
            _name(thread),
            [
                LocalsFrame(_frame(frame, proc.cwd), {local.name: _local_text(local) for local in frame.locals or []})
                for frame in _innermost_and_outermost(thread.frames)
            ],
        )
        for thread in ([main] if main else []) + others[:OTHERS]
    ]


async def dump_stacks(
    pids: Sequence[int], *, may_pause: bool = False, options: Iterable[str] = ()
) -> dict[int, StackDump]:
    """Read the threads of each process with py-spy, all from one child process."""
    if not pids:
        return {}
    at_once = 2 * (os.cpu_count() or 1)
    command = [pyspy.pyspy_path(), "dump", "--json", *([] if may_pause else ["--nonblocking"]), *options]
    outcome = await run_process(
        [
            *(sys.executable, "-IS", str(Path(pyspy_batch.__file__)), str(at_once), str(LIMIT_S)),
            *command,
            "--",
            *map(str, pids),
        ],
        limit_s=START_S + LIMIT_S * -(-len(pids) // at_once),
        env=os.environ | {"RUST_BACKTRACE": "0"},
        answers=True,
    )
    whole = outcome.answer[: outcome.answer.rfind(b"\n") + 1]
    answers = {answer.pid: _read(answer) for answer in msgspec.json.Decoder(_Answer).decode_lines(whole)}
    silent = StackDump(problem=f"stack: py-spy {outcome.why}")
    return {pid: answers.get(pid, silent) for pid in pids}


def split_threads(threads: Sequence[SpyThread], pid: int) -> tuple[SpyThread | None, list[SpyThread]]:
    """Split the main thread from the others. In another pid namespace the kernel's thread ids are not known."""
    tests: tuple[Callable[[SpyThread], bool], ...] = (
        lambda thread: thread.os_thread_id == pid,
        lambda thread: thread.thread_name == "MainThread",
        lambda _thread: len(threads) == 1,
    )
    main = next((thread for test in tests for thread in threads if test(thread)), None)
    return main, [thread for thread in threads if thread is not main]


def main_stack(dump: StackDump, pid: int, cwd: str) -> list[StackFrame]:
    """Return the frames of the main thread, innermost first."""
    main, _ = split_threads(dump.threads, pid)
    return _frames(main, cwd) if main else []


def _is_inconsistent(dump: StackDump, pid: int) -> bool:
    """Return whether the outer frames of the main thread are missing.

    A generator that is suspended while it is read without a pause has no outer frame. A process that exits calls its
    last functions without one too.
    """
    main, _ = split_threads(dump.threads, pid)
    return main is not None and main.frames != [] and main.frames[-1].name not in OUTERMOST


async def _ask(process: Process, sample: Sample) -> tuple[int, tuple[list[StackFrame], list[ThreadStack]] | None]:
    """Return the stacks from the rank's worker socket, if it has one and answers."""
    socket = worker_server.worker_socket(process) if sample.process_state not in STOPPED else None
    answer = await worker_server.fetch_stacks(socket, WORKER_LIMIT_S) if socket else None
    return process.pid, answer if answer and answer[0] else None


def _counters(pid: int) -> Sample:
    """Return a sample without stacks: the accessible counters in /proc."""
    now = time.time()
    counters = procfs.counters(pid)
    if counters is None or counters.state == "Z":
        gone = "" if counters is None else "Z"
        return Sample(at=now, process_state=gone, cpu_s=0.0, switches=0, problem=GONE)
    read_bytes, written_bytes = procfs.read_io_bytes(pid)
    return Sample(
        at=now,
        process_state=counters.state,
        cpu_s=counters.cpu_s,
        switches=counters.switches,
        read_bytes=read_bytes,
        written_bytes=written_bytes,
        waits_in=procfs.kernel_wait_function(pid),
        gpu=procfs.has_gpu_open(pid),
    )


def _thread(thread: SpyThread, process: Process) -> ThreadStack:
    """Return a thread other than the main one. In another pid namespace it has no counters."""
    known = thread.os_thread_id is not None and process.pid_inside is None
    state, switches = procfs.thread_state(process.pid, thread.os_thread_id or 0) if known else ("", 0)
    return ThreadStack(_name(thread), _frames(thread, process.cwd), state, switches, thread.owns_gil)


def _read(answer: _Answer) -> StackDump:
    if answer.timed_out:
        return StackDump(problem=f"stack: py-spy did not answer within {LIMIT_S:g} s")
    if any(word.decode() in answer.error for word in pyspy_batch.REFUSED):
        return StackDump(
            problem=f"stack: not permitted: {ptrace.access_problem(ptrace.read_access(answer.pid))}", refused=True
        )
    try:
        return StackDump(pyspy.parse_threads(answer.out))
    except ValueError:
        pass
    if "Failed to find python version" in answer.error:
        return StackDump(problem="stack: not a Python process that py-spy knows")
    errors = (line for line in answer.error.splitlines() if line.startswith("Error:"))
    return StackDump(problem=f"stack: {next(errors, 'py-spy gave no readable answer')[:160]}")


def _frames(thread: SpyThread, cwd: str) -> list[StackFrame]:
    return [_frame(frame, cwd) for frame in _innermost_and_outermost(thread.frames)]


def _innermost_and_outermost(frames: list[SpyFrame]) -> list[SpyFrame]:
    return (
        frames
        if len(frames) <= MAX_INNERMOST_FRAMES + MAX_OUTERMOST_FRAMES
        else frames[:MAX_INNERMOST_FRAMES] + frames[-MAX_OUTERMOST_FRAMES:]
    )


def _frame(frame: SpyFrame, cwd: str) -> StackFrame:
    return StackFrame(frame.name, _absolute(frame.filename, cwd), frame.line)


def _name(thread: SpyThread) -> str:
    return thread.thread_name or (f"thread {thread.os_thread_id}" if thread.os_thread_id else "thread")


def _local_text(local: SpyLocal) -> str:
    value = local.repr or ""
    if redact.is_secret_name(local.name) or redact.is_secret(local.name, value):
        return redact.HIDDEN
    return redact.redact_text(value)[:VALUE_LENGTH]


def _absolute(path: str, cwd: str) -> str:
    return path if path.startswith(("/", "<")) or not cwd else str(Path(cwd, path))
