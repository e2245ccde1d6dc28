"""The learner's own copy of a lab: files to edit, kept between runs and sessions."""

import shlex
import shutil
from pathlib import Path

from ...knowledge.labs import Lab
from ..launchers.arguments import parse_launcher
from ..launchers.recognise import parse_python
from ..system.paths import state_dir


def labs_dir() -> Path:
    """Return the directory of the copies: ``labs`` in the state directory."""
    return state_dir() / "labs"


def make_workspace(lab: Lab, directory: Path) -> None:
    """Copy the files of a lab that are not there yet; what the learner has edited stays."""
    for path in lab.files:
        copy = directory / path.relative_to(lab.directory)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def reset_workspace(lab: Lab, directory: Path) -> None:
    """Restore all files of a lab."""
    shutil.rmtree(directory, ignore_errors=True)
    make_workspace(lab, directory)


def remove_outputs(lab: Lab, directory: Path) -> None:
    """Remove what earlier runs have written: every file that is not one of the lab's."""
    own = {directory / path.relative_to(lab.directory) for path in lab.files}
    for path in [*directory.rglob("*")]:
        if path.is_file() and path not in own:
            path.unlink()


def is_edited(lab: Lab, directory: Path) -> bool:
    """Return whether a file differs from that of the lab."""
    return any((directory / path.relative_to(lab.directory)).read_bytes() != path.read_bytes() for path in lab.files)


def script_of(lab: Lab, directory: Path) -> Path:
    """Return the training script that the command line of a lab starts."""
    words = shlex.split(lab.launch)
    started, python = parse_launcher(words), parse_python(words)
    return directory / (started.script if started else python.target if python else "train.py")
