"""What a process itself says of its rank: the local variables of its Python frames, by one py-spy look that does not
pause it. Only for processes whose environment does not tell."""

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
TRIES = 2  # a moving process is read while it changes
MOST = 512  # processes that are asked at most, for one look at the box
REMEMBERED = 4096
FRESH_S = 1.0
TORCH_SPAWN = "/torch/multiprocessing/spawn.py"
RUN = "/multiprocessing/process.py"
LOADER = "/torch/utils/data/_utils/worker.py"
DISTRIBUTED = re.compile(r"/torch/distributed/|/torch/nn/parallel/distributed\.py$")
INSTALLED = re.compile(r"/torch/|/(site|dist)-packages/|/lib(64)?/python3(\.\d+)?/|^<(?!string>|stdin>)")
RANK_NAMES = ("rank", "global_rank")
WORLD_NAMES = ("world_size", "world")


class RankHints(msgspec.Struct, frozen=True, kw_only=True):
    """What one process's main thread tells. ``index`` is the number mp.spawn gave it, ``entry`` the function a
    multiprocessing child runs; ``spawns`` is how many processes it starts itself with mp.spawn."""

    rank: int | None = None
    world_size: int | None = None
    index: int | None = None
    entry: str = ""
    distributed: bool = False  # it is in torch.distributed
    loader: bool = False  # it is a worker of a DataLoader
    spawns: int | None = None


_told: dict[tuple[int, float], tuple[float, RankHints | None]] = {}  # pid and start: when asked, what it said


def read_locals(processes: Iterable[procfs.Proc]) -> dict[int, RankHints]:
    """Ask each process; who cannot be read is left out."""
    asked = list(processes)[:MOST]
    try:
        program = pyspy.pyspy_path()
    except InspectionError:
        return {}
    now = time.monotonic()
    fresh = [proc for proc in asked if not _still_holds(_told.get((proc.pid, proc.started_s)), now)]
    if len(_told) > REMEMBERED:
        _told.clear()
    with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as pool:
        for proc, said in zip(fresh, pool.map(lambda proc: _ask(program, proc.pid), fresh), strict=True):
            _told[proc.pid, proc.started_s] = (now, said)
    told = {proc.pid: _told.get((proc.pid, proc.started_s), (now, None))[1] for proc in asked}
    return {pid: said for pid, said in told.items() if said}


def _still_holds(answer: tuple[float, RankHints | None] | None, now: float) -> bool:
    """A rank and a world do not change; the rest does."""
    if answer is None:
        return False
    when, said = answer
    lasting = said is not None and (said.loader or (said.rank is not None and said.world_size is not None))
    return lasting or now - when < FRESH_S


def _ask(program: str, pid: int) -> RankHints | None:
    command = [program, "dump", "--json", "--locals", "--nonblocking", "--pid", str(pid)]
    for _ in range(TRIES):
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
            threads = pyspy.parse_threads(done.stdout.decode(errors="replace"))
        except subprocess.TimeoutExpired:
            break
        except (OSError, ValueError):  # a torn read, a process that is gone or may not be read
            continue
        main = next((thread for thread in threads if thread.os_thread_id == pid), None)
        return rank_hints(main.frames) if main else None
    return None


def rank_hints(frames: Sequence[SpyFrame]) -> RankHints:
    """What py-spy's frames of a main thread, innermost first and with locals, come to."""
    stack = frames[::-1]
    # A forked child stands under the frames of its parent: what lies outside of Process.run is the parent's.
    inside = stack[max((at for at, frame in enumerate(stack) if _runs(frame)), default=0) :]
    own = [frame for frame in inside if not INSTALLED.search(frame.filename)]
    meeting = [frame for frame in inside if frame.name == "init_process_group" and DISTRIBUTED.search(frame.filename)]
    # Arguments before other variables, the outermost frame first: a worker's `def work(rank, world_size)`.
    places = [(frame, True) for frame in meeting + own] + [(frame, False) for frame in own]
    wrap = next((frame for frame in inside if _wraps(frame)), None)
    spawning = next((f for f in inside if f.name == "start_processes" and f.filename.endswith(TORCH_SPAWN)), None)
    return RankHints(
        rank=_first(places, RANK_NAMES),
        world_size=_first(places, WORLD_NAMES),
        index=_value(wrap, "i") if wrap else None,
        entry=_entry(inside),
        distributed=any(DISTRIBUTED.search(frame.filename) for frame in inside),
        loader=any(frame.filename.endswith(LOADER) for frame in stack),
        spawns=_value(spawning, "nprocs") if spawning else None,
    )


def _first(places: Sequence[tuple[SpyFrame, bool]], names: Sequence[str]) -> int | None:
    found = (_value(frame, name, argument) for frame, argument in places for name in names)
    return next((value for value in found if value is not None), None)


def _value(frame: SpyFrame, name: str, argument: bool = True) -> int | None:
    local = next((each for each in frame.locals or [] if each.name == name and each.arg is argument), None)
    return parse_count(local.repr) if local else None


def _entry(inside: Sequence[SpyFrame]) -> str:
    """The function that multiprocessing's ``Process.run`` calls, through mp.spawn's wrapper or without."""
    if not inside or not _runs(inside[0]):
        return ""
    called = next((frame for frame in inside[1:] if not _wraps(frame)), None)
    return f"{called.filename}:{called.name}" if called else ""


def _runs(frame: SpyFrame) -> bool:
    return frame.name.rpartition(".")[2] == "run" and frame.filename.endswith(RUN)


def _wraps(frame: SpyFrame) -> bool:
    return frame.name == "_wrap" and frame.filename.endswith(TORCH_SPAWN)
