"""Read one Flight Recorder dump from a file."""

import re
from pathlib import Path

import msgspec

from ...errors import UserError
from ...system.files import read_regular_file
from ..types import RankRecord
from .parse import parse_dump
from .safe_unpickle import DumpError

MOST_BYTES = 1_000_000_000
RANK_AT_END = re.compile(r"(?<!\d)(\d{1,5})(?:\.(?:json|pkl|pickle|bin|dump))?$")
# Common parts of a dump's file name other than the host.
NAME_WORDS = re.compile(
    r"(?:nccl|comm|lib|trace|rank|dump|fr|flight|recorder|debug|info|gloo|torch|tmp|r)?", re.IGNORECASE
)


class LoadedFile(msgspec.Struct, frozen=True):
    """The record in a file, or why there is none."""

    record: RankRecord | None = None
    problem: str = ""


def load_file(path: Path, rank: int) -> LoadedFile:
    """Load one file in this process."""
    try:
        data = read_regular_file(path, MOST_BYTES, "")
        return LoadedFile(parse_dump(data, rank, host=host_in_name(path), source=str(path.absolute())))
    except DumpError as error:
        return LoadedFile(problem=str(error))
    except UserError as error:
        return LoadedFile(problem=error.message.removeprefix(f"cannot read {path}: ").removeprefix(f"{path} "))


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
