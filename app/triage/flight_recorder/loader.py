"""Load Flight Recorder dumps from files: pickle or JSON, NCCL or gloo, versions 2.0 to 2.10.

A dump is untrusted data: nothing in it is executed, and unreadable parts are reported as problems. The format is that
of torch 2.13, checked with dumps of gloo jobs (2.10) and of an NCCL job (2.9).
"""

import gc
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from ..types import RankRecord
from .parse import parse_dump, parse_json_record
from .safe_unpickle import DumpError
from .types import Records

__all__ = ["Records", "host_in_name", "load_records", "parse_json_record", "rank_in_name"]

WORKERS = 2
MOST_DEATHS = 5
WORKERS_FROM_BYTES = 10_000_000  # below, starting child processes takes longer than reading
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ddpwizard.app.triage.flight_recorder import child; child.main()"
)
MOST_BYTES = 1_000_000_000
RANK_AT_END = re.compile(r"(?<!\d)(\d{1,6})(?:\.(?:json|pkl|pickle|bin|dump))?$")
# Common parts of a dump's file name other than the host.
NAME_WORDS = re.compile(
    r"(?:nccl|comm|lib|trace|rank|dump|fr|flight|recorder|debug|info|gloo|torch|tmp|r)?", re.IGNORECASE
)
NO_DUMPS = {".log", ".txt", ".md", ".py", ".csv", ".yaml", ".yml", ".out", ".err", ".html", ".gz", ".zip", ".tar"}
Chooser = Callable[[Path], int | None]


class LoadedFile(msgspec.Struct, frozen=True):
    """The record in a file, or why there is none."""

    record: RankRecord | None = None
    problem: str = ""


def load_records(paths: Iterable[str | Path], choose_rank: Chooser | None = None) -> Records:
    """Load the records in these files and directories, one per rank. Each problem names its file.

    ``choose_rank`` returns the rank of a file whose name does not end with one.
    """
    given = [Path(path) for path in paths]
    files, problems = _files(given)
    wanted: list[tuple[Path, int, int]] = []
    for path in files:
        rank = rank_in_name(path)
        if rank is None and choose_rank:
            rank = choose_rank(path)
        size = path.stat().st_size
        if rank is None:
            problems.append(f"{path}: the file name does not end with the rank's number")
        elif size > MOST_BYTES:
            problems.append(f"{path}: larger than any dump ({size} bytes)")
        else:
            wanted.append((path, rank, size))
    if sum(size for _, _, size in wanted) < WORKERS_FROM_BYTES:
        read = [load_file(path, rank) for path, rank, _ in wanted]
    else:
        read = _load_in_children(wanted)
    records: dict[int, RankRecord] = {}
    for (path, _, _), each in zip(wanted, read, strict=True):
        if each.record is None:
            problems.append(f"{path}: {each.problem}")
        elif each.record.rank in records:
            problems.append(f"{path}: rank {each.record.rank} was already read from {records[each.record.rank].source}")
        else:
            records[each.record.rank] = each.record
    folder = str(given[0].absolute()) if given else ""
    return Records(records=[records[rank] for rank in sorted(records)], problems=sorted(problems), folder=folder)


def load_file(path: Path, rank: int, limited: bool = False) -> LoadedFile:
    """Load one file. ``limited``: this process runs under a memory limit."""
    try:
        data = path.read_bytes()
        return LoadedFile(parse_dump(data, rank, host=host_in_name(path), source=str(path.absolute()), limited=limited))
    except DumpError as error:
        return LoadedFile(problem=str(error))
    except OSError as error:
        return LoadedFile(problem=error.strerror or "cannot be opened")


def rank_in_name(path: Path) -> int | None:
    """Return the number at the end of a dump's file name, or None."""
    found = RANK_AT_END.search(path.name)
    return int(found[1]) if found else None


def host_in_name(path: Path) -> str:
    """Return the host in a file name such as ``nccl_trace_node-07_rank_12``, or ""."""
    stem = RANK_AT_END.sub("", path.name)
    parts = [
        part for part in re.split(r"_+|\.+", stem) if not NAME_WORDS.fullmatch(part.strip("-")) and part.strip("-")
    ]
    return parts[-1].strip("-") if parts and re.search(r"[A-Za-z]", parts[-1]) else ""


def _files(paths: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Return the files that may be dumps, sorted by name. Logs and other text files in a directory are skipped."""
    files: list[Path] = []
    problems: list[str] = []
    for path in paths:
        try:
            if path.is_dir():
                inside = [each for each in path.rglob("*") if each.is_file() and not each.name.startswith(".")]
                files += [each for each in inside if each.suffix.lower() not in NO_DUMPS]
            elif path.is_file():
                files.append(path)
            else:
                problems.append(f"{path}: no such file or directory")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
    return sorted(dict.fromkeys(files)), problems


def _load_in_children(wanted: list[tuple[Path, int, int]]) -> list[LoadedFile]:
    """Load files in parallel child processes; the answers are in the order of the files."""
    shares = [list(range(first, len(wanted), WORKERS)) for first in range(WORKERS)]
    read: list[LoadedFile | None] = [None] * len(wanted)

    def work(share: list[int]) -> None:
        left, deaths = share, 0
        while left and deaths < MOST_DEATHS:
            answers = _run_child([(str(wanted[at][0].absolute()), wanted[at][1]) for at in left])
            for at, answer in zip(left, answers, strict=False):
                read[at] = answer
            left = left[len(answers) :]
            if left:  # the child process died at this file
                read[left[0]] = LoadedFile(problem="refused: reading it needs more memory than a dump does")
                left, deaths = left[1:], deaths + 1

    collecting = gc.isenabled()
    gc.disable()  # millions of numbers without reference cycles
    try:
        with ThreadPoolExecutor(WORKERS) as threads:
            list(threads.map(work, shares))
    finally:
        if collecting:
            gc.enable()
    return [each or LoadedFile(problem="not read") for each in read]


def _run_child(files: list[tuple[str, int]]) -> list[LoadedFile]:
    """Return what a new child process reads, up to the file at which it died."""
    command = [sys.executable, "-I", "-c", BOOT, json.dumps([entry for entry in sys.path if entry])]
    done = subprocess.run(
        command, input=msgspec.json.encode(files), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    answers: list[LoadedFile] = []
    decoder, at, data = msgspec.msgpack.Decoder(LoadedFile), 0, done.stdout
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        if at + 8 + length > len(data):
            break
        answers.append(decoder.decode(memoryview(data)[at + 8 : at + 8 + length]))
        at += 8 + length
    return answers
