"""Infer a process's rank from its local variables (non-blocking py-spy). Used only if the environment lacks RANK."""

import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ..errors import InspectionError
from ..system import procfs, pyspy
from ..system.pyspy import SpyFrame
from ..text.numbers import parse_count

LIMIT_S = 2.0
TRIES = 2  # a running process changes while it is read
MAX_PROCESSES = 512  # sampled in one pass
CACHE_ENTRIES = 4096
FRESH_S = 1.0
TORCH_SPAWN = "/torch/multiprocessing/spawn.py"
RUN = "/multiprocessing/process.py"
FORK = "/multiprocessing/popen_fork.py"
LOADER = "/torch/utils/data/_utils/worker.py"
DISTRIBUTED = re.compile(r"/torch/distributed/|/torch/nn/parallel/distributed\.py$")
INSTALLED = re.compile(r"/torch/|/(site|dist)-packages/|/lib(64)?/python3(\.\d+)?/|^<(?!string>|stdin>)")
RANK_NAMES = ("rank", "global_rank")
WORLD_NAMES = ("world_size", "world")


class RankHints(msgspec.Struct, frozen=True, kw_only=True):
    """Rank hints of a process's main thread. ``index``: its number from mp.spawn. ``entry``: the function that a
    multiprocessing child runs. ``spawns``: the number of processes that it starts with mp.spawn."""

    rank: int | None = None
    world_size: int | None = None
    index: int | None = None
    entry: str = ""
    distributed: bool = False  # it is in torch.distributed
    loader: bool = False  # it is a worker of a DataLoader
    spawns: int | None = None


_cache: dict[tuple[int, float], tuple[float, RankHints | None]] = {}  # pid and start time: sampling time, hints


def read_locals(processes: Iterable[procfs.Proc]) -> dict[int, RankHints]:
    """Sample each process. Unreadable processes are left out."""
    sampled = list(processes)[:MAX_PROCESSES]
    try:
        program = pyspy.pyspy_path()
    except InspectionError:
        return {}
    now = time.monotonic()
    expired = [proc for proc in sampled if not _is_valid(_cache.get((proc.pid, proc.started_s)), now)]
    if len(_cache) > CACHE_ENTRIES:
        _cache.clear()
    with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as pool:
        for proc, hints in zip(expired, pool.map(lambda proc: _sample(program, proc.pid), expired), strict=True):
            _cache[proc.pid, proc.started_s] = (now, hints)
    found = {proc.pid: _cache.get((proc.pid, proc.started_s), (now, None))[1] for proc in sampled}
    return {pid: hints for pid, hints in found.items() if hints}


def _is_valid(entry: tuple[float, RankHints | None] | None, now: float) -> bool:
    """Return whether a cache entry is still valid. Rank and world size of a process do not change."""
    if entry is None:
        return False
    sampled_at, hints = entry
    is_final = hints is not None and (hints.loader or (hints.rank is not None and hints.world_size is not None))
    return is_final or now - sampled_at < FRESH_S


def _sample(program: str, pid: int) -> RankHints | None:
    command = [program, "dump", "--json", "--locals", "--nonblocking", "--pid", str(pid)]
    for _ in range(TRIES):
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
            threads = pyspy.parse_threads(done.stdout.decode(errors="replace"))
        except subprocess.TimeoutExpired:
            break
        except (OSError, ValueError):  # a torn read; a process that has ended or is not readable
            continue
        main = next((thread for thread in threads if thread.os_thread_id == pid), None)
        return rank_hints(main.frames) if main else None
    return None


def rank_hints(frames: Sequence[SpyFrame]) -> RankHints:
    """Return the hints in py-spy's frames of a main thread, innermost first and with locals."""
    stack = frames[::-1]
    # A forked child has the frames of its parent too: all outside of Process.run are the parent's. During the fork
    # parent and child have the same frames.
    inside = stack[max((at for at, frame in enumerate(stack) if _runs(frame) or _forks(frame)), default=0) :]
    own = [frame for frame in inside if not INSTALLED.search(frame.filename)]
    joining = [frame for frame in inside if frame.name == "init_process_group" and DISTRIBUTED.search(frame.filename)]
    # Arguments before other variables, the outermost frame first: a worker's `def work(rank, world_size)`.
    places = [(frame, True) for frame in joining + own] + [(frame, False) for frame in own]
    wrap = next((frame for frame in inside if _wraps(frame)), None)
    spawning = next((f for f in inside if f.name == "start_processes" and f.filename.endswith(TORCH_SPAWN)), None)
    return RankHints(
        rank=_first_value(places, RANK_NAMES),
        world_size=_first_value(places, WORLD_NAMES),
        index=_value(wrap, "i") if wrap else None,
        entry=_entry(inside),
        distributed=any(DISTRIBUTED.search(frame.filename) for frame in inside)
        and not any(map(_imports_torch, inside)),
        loader=any(frame.filename.endswith(LOADER) for frame in stack),
        spawns=_value(spawning, "nprocs") if spawning else None,
    )


def _first_value(places: Sequence[tuple[SpyFrame, bool]], names: Sequence[str]) -> int | None:
    found = (_value(frame, name, argument) for frame, argument in places for name in names)
    return next((value for value in found if value is not None), None)


def _value(frame: SpyFrame, name: str, argument: bool = True) -> int | None:
    local = next((each for each in frame.locals or [] if each.name == name and each.arg is argument), None)
    return parse_count(local.repr) if local else None


def _entry(inside: Sequence[SpyFrame]) -> str:
    """The function that multiprocessing's ``Process.run`` calls, with or without mp.spawn's wrapper."""
    if not inside or not _runs(inside[0]):
        return ""
    called = next((frame for frame in inside[1:] if not _wraps(frame)), None)
    return f"{called.filename}:{called.name}" if called else ""


def _runs(frame: SpyFrame) -> bool:
    return frame.name.rpartition(".")[2] == "run" and frame.filename.endswith(RUN)


def _forks(frame: SpyFrame) -> bool:
    return frame.name.rpartition(".")[2] == "_launch" and frame.filename.endswith(FORK)


def _imports_torch(frame: SpyFrame) -> bool:
    return frame.name == "<module>" and "/torch/" in frame.filename


def _wraps(frame: SpyFrame) -> bool:
    return frame.name == "_wrap" and frame.filename.endswith(TORCH_SPAWN)
