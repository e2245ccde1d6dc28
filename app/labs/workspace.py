"""The learner's own copy of a lab: files to edit, kept between runs and sessions."""

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, count
from pathlib import Path

from ...knowledge.labs import Lab, files_of_lab
from ..fixes.types import FilePatch, Fix
from ..launchers.arguments import parse_launcher
from ..launchers.recognise import parse_python
from ..system.paths import state_dir
from ..training_script.source import read_source

ORIGINAL = "original"  # in the learner's directory: the files of the lab, run apart from the copy
RESTORED = "The files of a lab, restored"
OUTPUTS = ".outputs"  # in the learner's directory: the names of the files that the last run has written


def labs_dir() -> Path:
    """Return the directory of the copies: ``labs`` in the state directory."""
    return state_dir() / "labs"


def free_name(lab: str, number: str) -> str:
    """Return a name for a new copy of a lab: its number, as its id is the answer; a copy from before has its id."""
    if not number or (labs_dir() / lab).exists():
        return lab
    names = chain([number], (f"{number}-{copy}" for copy in count(2)))
    return next(name for name in names if not (labs_dir() / name).exists())


def make_workspace(lab: Lab, directory: Path) -> None:
    """Copy the files of a lab that are not there yet; what the learner has edited stays."""
    for path in lab.files:
        copy = directory / path.relative_to(lab.directory)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def make_original(lab: Lab, directory: Path) -> Path:
    """Copy the files of a lab into a directory of their own within the learner's, and return it."""
    original = directory / ORIGINAL
    shutil.rmtree(original, ignore_errors=True)
    make_workspace(lab, original)
    return original


def restoring_fix(lab: Lab, directory: Path) -> Fix:
    """Return the change that restores the files of a lab which the learner has edited.

    Raises:
        UserError: A file cannot be read.
    """
    copies = {path: directory / path.relative_to(lab.directory) for path in lab.files}
    patches = [
        FilePatch(path=str(copy), before=read_source(copy)[1], after=read_source(path)[1])
        for path, copy in copies.items()
        if copy.read_bytes() != path.read_bytes()
    ]
    return Fix(id="restore", cause=lab.cause, title=RESTORED, safety="display", patches=patches)


def reset_workspace(lab: Lab, directory: Path) -> None:
    """Restore the files of a lab and remove what its runs have written. Files of the learner stay."""
    remove_outputs(directory)
    shutil.rmtree(directory / ORIGINAL, ignore_errors=True)
    for path in lab.files:
        (directory / path.relative_to(lab.directory)).unlink(missing_ok=True)
    make_workspace(lab, directory)


@contextmanager
def recorded_outputs(directory: Path) -> Iterator[None]:
    """Remove what the last run in a directory has written, and record the files that are written meanwhile."""
    remove_outputs(directory)
    before = _files(directory)
    try:
        yield
    finally:
        written = sorted(_files(directory) - before)
        (directory / OUTPUTS).write_bytes(b"\0".join(os.fsencode(path) for path in written))


def remove_outputs(directory: Path) -> None:
    """Remove the files that the last run in a directory has written."""
    record = directory / OUTPUTS
    if record.exists():
        for name in filter(None, record.read_bytes().split(b"\0")):
            (directory / os.fsdecode(name)).unlink(missing_ok=True)
        record.unlink()


def _files(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*") if not path.is_dir()}


def is_edited(lab: Lab, directory: Path) -> bool:
    """Return whether a file differs from that of the lab."""
    names = _file_names(lab.directory, lab.directory.stat().st_mtime_ns)
    return any((directory / name).read_bytes() != (lab.directory / name).read_bytes() for name in names)


@lru_cache(maxsize=2)
def _file_names(of_lab: Path, _changed_ns: int) -> list[Path]:
    """Return the names of the files of a lab; a screen asks for them dozens of times a key."""
    return [path.relative_to(of_lab) for path in files_of_lab(of_lab)]


def script_of(lab: Lab, directory: Path) -> Path:
    """Return the training script that the command line of a lab starts."""
    words = shlex.split(lab.launch)
    started, python = parse_launcher(words), parse_python(words)
    return directory / (started.script if started else python.target if python else "train.py")
