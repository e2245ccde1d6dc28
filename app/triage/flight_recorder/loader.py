"""Load Flight Recorder dumps from files: pickle or JSON, NCCL or gloo, versions 2.0 to 2.10.

A dump is untrusted data: nothing in it is executed, and unreadable parts are reported as problems. The format is that
of torch 2.13, checked with dumps of gloo jobs (2.10) and of an NCCL job (2.9).
"""

import asyncio
import gc
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...errors import UserError
from ...system.cgroup_memory import available_memory_bytes
from ...system.files import files_below
from ...system.subprocesses import run_process
from ..types import RankRecord
from .file_reader import MOST_BYTES, LoadedFile, rank_in_name
from .types import Records

WORKERS = 2
MOST_DEATHS = 5
MOST_FILES = 1000  # of one child process: its arguments have room for 2 MB
PARALLEL_FROM_BYTES = 10_000_000  # below, starting a second child process takes longer than reading
MOST_MEMORY_BYTES, LEAST_MEMORY_BYTES = 6_000_000_000, 300_000_000  # of one child process
MEMORY_SHARE = 2 * WORKERS  # all together take at most half of the free memory
LIMIT_S = 60.0  # for a child process, and for each so many bytes a second more:
LEAST_BYTES_PER_S = 500_000
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ddpwizard.app.triage.flight_recorder import child; child.main()"
)
NO_DUMPS = {".log", ".txt", ".md", ".py", ".csv", ".yaml", ".yml", ".out", ".err", ".html", ".gz", ".zip", ".tar"}
Chooser = Callable[[Path], int | None]


class WantedFile(NamedTuple):
    """A file that may be a dump, with the rank in its name."""

    path: Path
    rank: int
    size_bytes: int


async def read_records(paths: Iterable[str | Path], choose_rank: Chooser | None = None) -> Records:
    """Read the records in these files and directories, one per rank. Each problem names its file.

    ``choose_rank`` returns the rank of a file whose name does not end with one. Files are read by child processes with
    limits on memory and time, as any user of the machine may have written them; cancelling ends them.
    """
    given = [Path(path) for path in paths]
    files, problems = _files(given)
    wanted: list[WantedFile] = []
    for path in files:
        rank = rank_in_name(path)
        if rank is None and choose_rank:
            rank = choose_rank(path)
        try:
            size = path.stat().st_size
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        if rank is None:
            problems.append(f"{path}: the file name does not end with the rank's number")
        elif size > MOST_BYTES:
            problems.append(f"{path}: larger than any dump ({size} bytes)")
        else:
            wanted.append(WantedFile(path, rank, size))
    records: dict[int, RankRecord] = {}
    for file, each in zip(wanted, await _load_in_children(wanted), strict=True):
        if each.record is None:
            problems.append(f"{file.path}: {each.problem}")
        elif file.rank in records:
            problems.append(f"{file.path}: rank {file.rank} was already read from {records[file.rank].source}")
        else:
            records[file.rank] = each.record
    folder = str(given[0].absolute()) if given else ""
    return Records(records=[records[rank] for rank in sorted(records)], problems=sorted(problems), folder=folder)


def load_records(paths: Iterable[str | Path], choose_rank: Chooser | None = None) -> Records:
    """``read_records`` for callers without an event loop."""
    read: list[Records] = []

    async def load() -> None:
        # Not returned: at its end ``asyncio.run`` builds the repr of the result twice (``signal.getsignal``).
        read.append(await read_records(paths, choose_rank))

    asyncio.run(load())
    return read[0]


def _files(paths: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Return the files that may be dumps, sorted by name. Logs and other text files in a directory are skipped."""
    files: list[Path] = []
    problems: list[str] = []
    for path in paths:
        try:
            if path.is_dir():
                inside = [each for each in files_below(path) if not each.name.startswith(".")]
                possible = [each for each in inside if each.suffix.lower() not in NO_DUMPS]
                files += possible
                problems += [] if possible else [f"{path}: {_without_dumps(inside)}"]
            elif path.is_file():
                files.append(path)
            else:
                problems.append(f"{path}: no such file or directory")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
        except UserError as error:
            problems.append(error.message)
    return sorted(dict.fromkeys(files)), problems


def _without_dumps(inside: Sequence[Path]) -> str:
    if not inside:
        return "no files in it"
    some = "its file is no dump" if len(inside) == 1 else f"none of its {len(inside)} files is a dump"
    return f"{some}; the name of a dump ends with the number of its rank"


async def _load_in_children(wanted: list[WantedFile]) -> list[LoadedFile]:
    """Load files in parallel child processes; the answers are in the order of the files."""
    workers = WORKERS if sum(file.size_bytes for file in wanted) >= PARALLEL_FROM_BYTES else 1
    shares = [list(range(first, len(wanted), workers)) for first in range(workers)]
    read: list[LoadedFile | None] = [None] * len(wanted)

    async def work(share: list[int]) -> None:
        left, deaths = share, 0
        while left and deaths < MOST_DEATHS:
            now = left[:MOST_FILES]
            answers, died = await _run_child([wanted[at] for at in now])
            for at, answer in zip(now, answers, strict=False):
                read[at] = answer
            left = left[len(answers) :]
            if left and died:
                read[left[0]] = LoadedFile(problem="refused: reading it takes more memory or time than a dump does")
                left, deaths = left[1:], deaths + 1

    collecting = gc.isenabled()
    gc.disable()  # millions of numbers without reference cycles
    try:
        await asyncio.gather(*(work(share) for share in shares))
    finally:
        if collecting:
            gc.enable()
    return [each or LoadedFile(problem="not read: too many others could not be read") for each in read]


async def _run_child(files: list[WantedFile]) -> tuple[list[LoadedFile], bool]:
    """Return what a new child process reads, up to the file at which it stopped, and whether it died there."""
    memory_bytes = min(MOST_MEMORY_BYTES, max(LEAST_MEMORY_BYTES, available_memory_bytes() // MEMORY_SHARE))
    command = [sys.executable, "-I", "-c", BOOT, json.dumps([entry for entry in sys.path if entry]), str(memory_bytes)]
    for file in files:
        command += [str(file.path.absolute()), str(file.rank)]
    limit_s = LIMIT_S + sum(file.size_bytes for file in files) / LEAST_BYTES_PER_S
    done = await run_process(command, limit_s=limit_s, answers=True)
    answers: list[LoadedFile] = []
    decoder, at, data = msgspec.msgpack.Decoder(LoadedFile), 0, done.answer
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        if at + 8 + length > len(data):
            break
        answers.append(decoder.decode(memoryview(data)[at + 8 : at + 8 + length]))
        at += 8 + length
    return answers, done.status != "ok" or not answers
