"""The files of a plan for a script that exists: a patch with the planned layout, or a new program if there is none."""

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from ...review.migrations.ddp_checks import ALREADY
from ...review.migrations.engine import migrate
from ...review.migrations.fsdp2 import SHARDS_ALREADY
from ...review.migrations.types import Migration
from ...system.paths import relative_to_cwd
from ...text.diff import unified_diff
from ...training_script.source import read_source
from ..batch_scaling import BatchScaling
from ..script_changes import required_changes
from ..timing.communication import Links
from ..types import TrainingSetup
from .project import SCRIPT
from .write import render_job_files


class JobFiles(NamedTuple):
    """The files of a plan, name to content, and notes on them for the user."""

    files: dict[str, str]
    notes: list[str]


class ScriptPatch(NamedTuple):
    """A script and its text for the plan, with notes and the reason why it is not used ("": it is)."""

    before: str
    after: str
    notes: Sequence[str]
    unusable: str = ""


def plan_job_files(
    setting: TrainingSetup,
    directory: Path,
    script: str,
    batch: BatchScaling | None = None,
    versions: Mapping[str, str | None] | None = None,
    links: Links | None = None,
) -> JobFiles:
    """Render the files of a setting that go to ``directory``. The script is patched and started if that is possible.

    Raises:
        UserError: The script cannot be read, or the plan cannot be written.
    """
    render = partial(render_job_files, setting, batch=batch, versions=versions, links=links)
    if not Path(script).is_file():
        note = [f"{script} does not exist: {SCRIPT} is a new program"] if script != SCRIPT else []
        return JobFiles(render(), note)
    _, text, _ = read_source(Path(script))
    patch = patch_script(setting, script, text)
    if patch.unusable:
        note = f"{patch.unusable}: {SCRIPT} is a new program; put your model into model.py and your data into data.py"
        return JobFiles(render(), [note])
    made = render(os.path.relpath(script, directory))
    diff = unified_diff(patch.before, patch.after, relative_to_cwd(script))
    if not diff:
        return JobFiles(made, list(patch.notes))
    name = f"{Path(script).name}.patch"
    apply = f"the files start {script}: change it first with patch -p1 < {directory / name}"
    return JobFiles(made | {name: diff}, [apply, *patch.notes])


@lru_cache(maxsize=8)  # the screen asks at each key
def patch_script(setting: TrainingSetup, script: str, text: str) -> ScriptPatch:
    """Return the script for the layout of a setting, which saves its state and continues where it ended."""
    strategy, is_zero = setting.layout, setting.layout.kind == "deepspeed"
    target = "fsdp2" if strategy.is_fully_shard else "ddp" if strategy.replicates or is_zero else ""
    layout = migrate(text, script, target) if target else None
    refused, notes = layout.refusals[0].message if layout and layout.refusals else "", list[str]()
    if refused in (*ALREADY.values(), SHARDS_ALREADY):
        notes = [f"{script} is started as it is, since {refused}; for this plan:", *required_changes(setting)]
    elif is_zero:
        return ScriptPatch(text, text, [], f"{script} does not use DeepSpeed, and no patch can make it")
    elif layout and refused:
        return ScriptPatch(text, text, [], _refusal(layout))
    elif strategy.splits_model:
        return ScriptPatch(text, text, [], f"{script} needs changes in its model, and no patch can make them")
    elif layout:
        notes = [_note(script, note.line, note.message) for note in layout.reports]
    after = layout.after if layout and not is_zero else text
    resumed = migrate(after, script, "resume")
    if resumed.refusals:
        notes.append(f"{_refusal(resumed)}: the run does not continue after a failure")
    return ScriptPatch(text, resumed.after, notes)


def _refusal(migration: Migration) -> str:
    refusal = migration.refusals[0]
    return _note(migration.path, refusal.line, refusal.message)


def _note(path: str, line: int, message: str) -> str:
    return f"{relative_to_cwd(path)}:{line}: {message}"
