"""The directory that the job files of a strategy are written to, and the commands that start them."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from ..errors import UserError
from ..launchers import accelerate, schedulers
from .job_files.accelerate_yaml import HEAD
from .model_source import SCRIPT
from .script_changes import split_changes
from .strategies.ranking import shortage_text
from .types import PlanRow

DIRECTORY = "ddpwizard-plan"
FILES_WITHOUT = (
    "leave the option out to get files, and add it to the script: torchao's convert_to_float8_training, TRL's DPO"
)


def unwritable_error(row: PlanRow) -> UserError | None:
    """Return why no files are written for a strategy: it does not fit, or has no template yet; None if there are."""
    if row.setting.without_files:
        why = f"no files can be written for {row.candidate.strategy} yet, with {row.setting.without_files}"
        return UserError(why, " ".join(split_changes(row.setting)))
    if row.setting.train.fp8 or row.setting.train.reference_model:
        what = "fp8 products" if row.setting.train.fp8 else "a reference model"
        return UserError(f"no files can be written with {what} yet: nothing is written", FILES_WITHOUT)
    if row.candidate.fits is not False:
        return None
    why = f"{row.candidate.full_name} does not fit ({shortage_text(row)}): nothing is written"
    return UserError(why, "take a strategy that fits; the table of strategies explains what would make this one fit")


def free_directory(parent: Path) -> str:
    """Return a name for a directory that does not exist yet."""
    names = (DIRECTORY if number == 1 else f"{DIRECTORY}-{number}" for number in range(1, 1000))
    return next((name for name in names if not os.path.lexists(parent / name)), DIRECTORY)


def start_command(row: PlanRow, directory: str) -> str:
    """Return what starts the written files, on each of the nodes."""
    return f"sh {shlex.quote(directory)}/launch.sh{_on_each_node(row)}"


def start_lines(row: PlanRow, directory: str, made: Mapping[str, str]) -> list[str]:
    """Return the command that starts the written files, what comes before it, and those of other launchers."""
    inside, start = f"cd {shlex.quote(directory)} && ", start_command(row, directory)
    others = {"Slurm": f"{inside}sbatch {schedulers.SLURM_FILE}"}
    if accelerate.FILE in made:
        line = made[accelerate.FILE].partition("\n")[0].removeprefix("# ")
        others["Accelerate"] = f"{inside}{line}{_on_each_node(row)}"
    others["Kubernetes"] = f"{inside}kubectl apply -f {schedulers.PYTORCHJOB_FILE}"
    files = " and ".join(name for name in ("launch.sh", accelerate.FILE) if name in made)
    first = f"replace {HEAD} in {files} with the address of the first node" if row.setting.nodes > 1 else ""
    tiny = f"TINY=1 {start.partition('   #')[0]}   # a small model, on any machine" if SCRIPT in made else ""
    lines = {"first": first, "try": "" if first else tiny, "start": start}
    lines |= {f"with {launcher}": line for launcher, line in others.items()}
    return [f"{name}: {line}" for name, line in lines.items() if line]


def _on_each_node(row: PlanRow) -> str:
    return f"   # on each of the {row.setting.nodes} nodes" if row.setting.nodes > 1 else ""
