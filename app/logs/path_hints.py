"""Derive the rank, the host and the attempt of a log from its path.

Recognised are torchrun's ``--log-dir`` (``attempt_0/3/stderr.log``), names with a keyword (``rank3.log``,
``node-1.out``, ``worker-0.log``), and files of one folder that differ in one number only, counted from 0 or 1.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from .types import UNKNOWN_WRITER, Writer

TORCHRUN = re.compile(r"attempt_(?P<attempt>\d{1,4})/(?P<rank>\d{1,5})/(?:stdout|stderr)[^/]*$")
ATTEMPT = re.compile(r"(?:^|[/_.-])(?:attempt|restart|try)[_-]?(\d{1,4})(?=[/_.-]|$)", re.IGNORECASE)
RANK = re.compile(
    r"(?:^|[/_.-])(?:global[_-]?)?(local[_-]?)?(?:rank|proc|task)[_-]?(\d{1,5})(?=[/_.-]|$)", re.IGNORECASE
)
HOST = re.compile(
    r"(?:^|[/_.])((?:[a-z][a-z0-9]*-){0,6}(?:node|host|worker|master|pod|launcher|gpu|nid)[-_]?\d{1,6}(?:-\d{1,6})?)"
    r"(?=[/_.-]|$)",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\d+")
LEAST_SIBLINGS = 2


class PathHint(msgspec.Struct, frozen=True):
    """The writer of a file and its attempt, as far as its path shows."""

    writer: Writer = UNKNOWN_WRITER
    attempt: int | None = None


def path_hints(paths: Sequence[str]) -> list[PathHint]:
    """Return the hint of each path. A number in which the files of a folder differ is taken as the rank."""
    found = {path: _hint_from_words(path) for path in paths}
    for group in _siblings([path for path, hint in found.items() if not hint.writer.known]):
        for path, number in group.items():
            found[path] = PathHint(Writer(number), found[path].attempt)
    return [found[path] for path in paths]


def _hint_from_words(path: str) -> PathHint:
    attempt = ATTEMPT.search(path)
    number = int(attempt[1]) if attempt else None
    if torchrun := TORCHRUN.search(path):
        return PathHint(Writer(int(torchrun["rank"]), _host(path[: torchrun.start()]), local=True), number)
    name = "/".join(PurePath(path).parts[-2:])
    if rank := RANK.search(name):
        return PathHint(Writer(int(rank[2]), _host(name) if rank[1] else "", local=bool(rank[1])), number)
    return PathHint(Writer(None, _host(name)), number)


def _host(path: str) -> str:
    hosts = HOST.findall(path)
    return hosts[-1] if hosts else ""


def _siblings(paths: Sequence[str]) -> list[dict[str, int]]:
    """Return groups of files whose names differ in exactly one number, counted from 0 or 1."""
    by_shape: dict[tuple[str, str, int], dict[str, int]] = defaultdict(dict)
    for path in paths:
        folder, _, name = path.rpartition("/")
        for at, number in enumerate(NUMBER.finditer(name)):
            shape = f"{name[: number.start()]}#{name[number.end() :]}"
            by_shape[folder, shape, at][path] = int(number[0])
    groups: list[dict[str, int]] = []
    for group in by_shape.values():
        numbers = sorted(group.values())
        if len(numbers) >= LEAST_SIBLINGS and numbers[0] in (0, 1) and numbers[-1] - numbers[0] == len(numbers) - 1:
            groups.append(group)
    return groups
