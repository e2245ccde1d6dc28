"""The pages read, the labs repaired and the quiz answers, kept in one file of the state directory."""

from pathlib import Path

import msgspec

from ..errors import UserError
from ..system.atomic_files import replace_file
from ..system.paths import state_dir
from .point import Point


class LabProgress(msgspec.Struct, kw_only=True):
    """The state of one lab.

    ``guess`` is what the learner named last, ``refused`` what was wrong, ``hints`` how many were shown. ``answered``:
    the answer is known; ``answer_shown``: the learner has not found it but had it shown. ``directory`` is the name of
    the learner's copy. ``launch`` and ``environ`` start the job after an applied fix. ``measured`` has the numbers of
    the plot, by run.
    """

    failed: bool = False  # it was seen to fail
    guess: str = ""
    refused: list[str] = []
    hints: int = 0
    answered: bool = False
    answer_shown: bool = False
    repaired: bool = False
    directory: str = ""
    launch: str = ""
    environ: dict[str, str] = {}
    measured: dict[str, list[Point]] = {}

    def forget_repair(self) -> None:
        """Forget what belongs to the learner's copy, as its files are restored."""
        self.launch, self.environ, self.measured = "", {}, {}


class Progress(msgspec.Struct, kw_only=True):
    """The state of all labs by id, the one used last at the end; the page of each chapter that was read last, from 1;
    and the quiz answers by id.
    """

    labs: dict[str, LabProgress] = {}
    pages: dict[str, int] = {}
    quiz: dict[str, str] = {}

    def of(self, lab: str) -> LabProgress:
        """Return the state of a lab, which is kept from now on."""
        return self.labs.setdefault(lab, LabProgress())

    def keep(self, lab: str, state: LabProgress) -> None:
        """Keep the state of the lab that is used now."""
        self.labs.pop(lab, None)
        self.labs[lab] = state


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
