"""One journey: a job that fails, the cause to find, the line to name, and the edit that its fix dictates."""

from pathlib import Path

import msgspec
from helpers.hang_cases import Hang


class Edit(msgspec.Struct, frozen=True):
    """The change of one of the user's files that a fix by hand asks for."""

    file: str
    old: str
    new: str


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ends by itself; what it printed is the log that the user has.

    ``directory``: that of its scripts. ``command``: as typed. ``earlier``: the command of a job of the same directory
    that still runs, and has printed ``trains``; ``leftover``: to end it is the fix. ``exported``: variables of the
    user's shell, as (name, value).
    """

    directory: str
    command: str = "torchrun --standalone --nproc-per-node=2 train.py"
    earlier: str = ""
    leftover: bool = False
    exported: tuple[tuple[str, str], ...] = ()


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """From a failed job to a proof.

    ``causes``: the ids that are right. ``at``: texts of lines; the fix has to name the file and number of one of them.
    ``names``: where the command line is at fault, not a file: the texts that the fix has to show instead.
    ``edits``: applied by the user where the fix is to be made by hand; empty where a patch is expected.
    ``run_first``: the edit is dictated by a run for proof of the files as they are, which names the line.
    ``row``: what the user chooses on Home for a job that runs.
    """

    name: str
    job: Hang | Crash
    causes: tuple[str, ...]
    at: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    run_first: bool = False
    row: str = "My job hangs"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a journey. ``seconds`` and ``keys`` count from ``ddpwizard`` to the result of the proof."""

    name: str
    cause: bool
    place: bool
    proved: bool
    by_patch: bool
    seconds: float
    keys: int
    note: str


def places(directory: Path, texts: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return file name and number of each line of a job's files that contains one of the texts."""
    found = [
        (path.name, number)
        for path in sorted(directory.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(text in line for text in texts)
    ]
    assert found or not texts, f"no line in {directory} contains one of {texts}"
    return found
