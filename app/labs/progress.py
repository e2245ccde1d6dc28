"""What a learner has read and repaired, kept in one file of the state directory."""

from pathlib import Path

import msgspec

from ..errors import UserError
from ..system.atomic_files import replace_file
from ..system.paths import state_dir


class LabProgress(msgspec.Struct, kw_only=True):
    """The state of one lab. ``guess`` is the cause that the learner named, ``hints`` how many were shown."""

    failed: bool = False  # it was seen to fail
    guess: str = ""
    hints: int = 0
    repaired: bool = False


class Progress(msgspec.Struct, kw_only=True):
    """The state of all labs, by cause, and the page of each chapter that was read last, from 1."""

    labs: dict[str, LabProgress] = {}
    pages: dict[str, int] = {}

    def of(self, cause: str) -> LabProgress:
        """Return the state of a lab, which is kept from now on."""
        return self.labs.setdefault(cause, LabProgress())


def progress_file() -> Path:
    """Return the file of the progress."""
    return state_dir() / "learn.json"


def load_progress() -> Progress:
    """Return the progress; a file that cannot be read counts as none."""
    try:
        return msgspec.json.decode(progress_file().read_bytes(), type=Progress)
    except (OSError, msgspec.MsgspecError):
        return Progress()


def save_progress(progress: Progress) -> None:
    """Write the progress.

    Raises:
        UserError: The state directory cannot be written.
    """
    path = progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.format(msgspec.json.encode(progress)))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "the progress of the labs is not kept") from error
