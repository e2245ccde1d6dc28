"""The child processes of ranks: data loader workers, shell commands, compilers; their progress and stacks."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from ...jobs.types import Job
from ...system import procfs
from ...system.procfs import Proc
from ...text import redact
from ...training_script.frame import StackFrame
from ..types import Child
from . import stacks

PER_RANK = 64
STACKS = 128  # of all children in total
WORDS, WORD_LENGTH = 40, 300
LOADER_NAME = "pt_data_worker"  # torch.utils.data._utils.worker gives its main thread this name
LOADER_LOOP = ("torch/utils/data/_utils/worker.py", "_worker_loop")
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # of Python itself; they are always idle
IDLE_SWITCHES = 1  # context switches of an idle loader worker: it wakes up to check whether its rank is alive


class _Usage(msgspec.Struct, frozen=True):
    cpu_s: float
    switches: int
    io_bytes: int


class WatchedChild(msgspec.Struct, kw_only=True):
    """A child process being watched. ``stack`` is filled only if it was read."""

    proc: Proc
    rank_pid: int
    usage: _Usage | None
    loader: bool
    stack: list[StackFrame] = []


def watch_children(job: Job) -> list[WatchedChild]:
    """Return the living descendants of every rank, from one pass over /proc."""
    processes = procfs.all_processes()
    below: dict[int, list[Proc]] = defaultdict(list)
    for proc in processes.values():
        below[proc.parent].append(proc)
    ranks = {process.pid for process in job.processes}
    found: list[WatchedChild] = []
    for pid in ranks:
        mine: list[WatchedChild] = []
        queue = [pid]
        while queue and len(mine) < PER_RANK:
            for proc in sorted(below[queue.pop(0)], key=lambda proc: proc.pid):
                if proc.pid in ranks:
                    continue
                queue.append(proc.pid)
                if not any(helper in word for word in proc.command for helper in HELPERS):
                    mine.append(_watched(proc, pid))
        found += mine[:PER_RANK]
    return found


async def read_child_stacks(watched: Sequence[WatchedChild], of_ranks: Collection[int]) -> None:
    """Read the stacks of the Python children of these ranks (pids); the stacks also identify loader workers."""
    wanted = [each for each in watched if each.rank_pid in of_ranks and each.proc.is_python and each.proc.state != "Z"]
    dumps = await stacks.dump_stacks([each.proc.pid for each in wanted[:STACKS]])
    for each in wanted[:STACKS]:
        each.stack = stacks.main_stack(dumps[each.proc.pid], each.proc.pid, each.proc.cwd)
        path, function = LOADER_LOOP
        each.loader |= any(frame.function == function and frame.path.endswith(path) for frame in each.stack)


def current_children(watched: Sequence[WatchedChild]) -> Mapping[int, list[Child]]:
    """Return the children by the pid of their rank, as they are now; a child that has ended counts as moved."""
    found: dict[int, list[Child]] = defaultdict(list)
    for each in watched:
        counters = procfs.counters(each.proc.pid)
        state = counters.state if counters else ""
        found[each.rank_pid].append(
            Child(
                pid=each.proc.pid,
                command=[word[:WORD_LENGTH] for word in redact.redact_command(each.proc.command[:WORDS])],
                kind="loader" if each.loader else "other",
                process_state=state,
                moved=state != each.proc.state or _has_progressed(each.usage, _usage_of(each.proc.pid)),
                stack=each.stack,
            )
        )
    return found


def _watched(proc: Proc, rank_pid: int) -> WatchedChild:
    return WatchedChild(
        proc=proc,
        rank_pid=rank_pid,
        usage=_usage_of(proc.pid),
        loader=procfs.main_thread_name(proc.pid) == LOADER_NAME,
    )


def _usage_of(pid: int) -> _Usage | None:
    counters = procfs.counters(pid)
    return _Usage(counters.cpu_s, counters.switches, sum(procfs.read_io_bytes(pid))) if counters else None


def _has_progressed(first: _Usage | None, last: _Usage | None) -> bool:
    if first is None or last is None:
        return first is not last
    return (
        last.cpu_s != first.cpu_s or last.io_bytes != first.io_bytes or last.switches - first.switches > IDLE_SWITCHES
    )
