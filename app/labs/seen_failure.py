"""The last failing run of a lab with its diagnosis, kept in the learner's directory so that the lab goes on with it."""

from pathlib import Path

import msgspec

from ..errors import UserError
from ..system.atomic_files import replace_file
from .lab_diagnosis import LabDiagnosis
from .lab_run import LabRun

FAILURE = ".failure"


class SeenFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A run that failed as the lab shows, and its diagnosis. ``of_original``: its files were those of the lab."""

    run: LabRun
    found: LabDiagnosis
    of_original: bool = False


def load_failure(directory: Path) -> SeenFailure | None:
    """Return the failure that is kept in a directory; a file that cannot be read counts as none."""
    try:
        return msgspec.json.decode((directory / FAILURE).read_bytes(), type=SeenFailure)
    except (OSError, msgspec.MsgspecError):
        return None


def save_failure(directory: Path, failure: SeenFailure) -> None:
    """Keep a failure.

    Raises:
        UserError: The directory cannot be written.
    """
    path = directory / FAILURE
    try:
        replace_file(path, msgspec.json.encode(failure))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "free space there, then run the lab again") from error


def forget_failure(directory: Path) -> None:
    """Remove what is kept."""
    (directory / FAILURE).unlink(missing_ok=True)
