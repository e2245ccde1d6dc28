"""The directory that the job files of a strategy are written to."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from . import summary
from .script_changes import split_changes
from .types import PlanRow

DIRECTORY = "ddpwizard-plan"
SCRIPT = "train.py"
FILES_WITHOUT = (
    "leave the option out to get files, and add it to the script: torchao's convert_to_float8_training, TRL's DPO"
)


def unwritable_error(row: PlanRow) -> UserError | None:
    """Return why no files are written for a strategy: it does not fit, or has no template yet; None if there are."""
    if row.setting.layout.splits_model:
        why = f"no files can be written for {row.candidate.strategy} yet: they need a mesh and a plan for your modules"
        return UserError(why, " ".join(split_changes(row.setting)))
    if row.setting.train.fp8 or row.setting.train.reference_model:
        what = "fp8 products" if row.setting.train.fp8 else "a reference model"
        return UserError(f"no files can be written with {what} yet: nothing is written", FILES_WITHOUT)
    if row.candidate.fits is not False:
        return None
    why = f"{row.candidate.full_name} does not fit ({summary.shortage_text(row)}): nothing is written"
    return UserError(why, "take a strategy that fits; enter on this one in the table shows what would make it fit")


def free_directory(parent: Path) -> str:
    """Return a name for a directory that does not exist yet."""
    names = (DIRECTORY if number == 1 else f"{DIRECTORY}-{number}" for number in range(1, 1000))
    return next((name for name in names if not os.path.lexists(parent / name)), DIRECTORY)


def ensure_new_files(directory: Path, names: Sequence[str], next_step: str) -> None:
    """Create the directory, and check that none of the files exists in it.

    Raises:
        UserError: One exists, or the directory cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {directory}: {error.strerror}", next_step) from error
    existing = [name for name in names if os.path.lexists(directory / name)]
    if existing:
        raise UserError(f"{directory / existing[0]} exists already", next_step)
