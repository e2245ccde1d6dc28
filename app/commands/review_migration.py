"""``ddpwizard review --to TARGET SCRIPT``: migrate a script, show the change, write it with ``--fix``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..exit_codes import ExitCode
from ..fixes.migration import (
    changes_script,
    migrate_script,
    note_lines,
    outcome_line,
    write_migration,
    written_line,
)
from ..fixes.records import AppliedFix
from ..options import Options
from ..review.migrations.types import Migration
from ..text.json_output import print_json, public_document
from ..text.terminal import print_line, print_patch, print_progress
from ..training_script.source import read_source


def run_migration(
    paths: Sequence[Path], target: str, knowledge: Knowledge, options: Options, *, diff: bool, fix: bool
) -> int:
    """Migrate a script; return ``FOUND`` if it is refused. ``diff``: print the patch only; ``fix``: write it.

    Raises:
        UserError: It is not exactly one script, or it cannot be read or written.
    """
    if len(paths) != 1:
        raise UserError("--to migrates one script", "give the file with the training loop")
    migration = migrate_script(paths[0], target)
    applied = write_migration(migration) if fix and changes_script(migration) else None
    if options.json:
        print_json(public_document("migration", knowledge, _as_json(migration, applied.id if applied else None)))
    elif diff:
        _print_notes(migration, on_stderr=True)
        _print_diff(migration, read_source(paths[0])[2])
    else:
        _print_all(migration, applied)
    return ExitCode.FOUND if migration.refusals else ExitCode.OK


def _as_json(migration: Migration, applied: str | None) -> dict[str, object]:
    return {
        "target": migration.target,
        "path": str(Path(migration.path).absolute()),
        "refusals": [note._asdict() for note in migration.refusals],
        "reports": [note._asdict() for note in migration.reports],
        "diff": migration.diff(),
        "applied": applied,
    }


def _print_all(migration: Migration, applied: AppliedFix | None) -> None:
    if not migration.refusals:
        print_patch(migration.diff())
    _print_notes(migration, on_stderr=False)
    if migration.refusals:
        return
    if applied:
        print_line(outcome_line(migration))
        print_line(written_line(migration, applied))
    elif changes_script(migration):
        print_line(f"--fix writes it, ddpwizard undo reverts it; {outcome_line(migration)}")
    else:
        print_line(outcome_line(migration))


def _print_notes(migration: Migration, *, on_stderr: bool) -> None:
    show = print_progress if on_stderr else print_line
    for line in note_lines(migration):
        show(line)


def _print_diff(migration: Migration, encoding: str) -> None:
    if sys.stdout.isatty():
        print_patch(migration.diff())
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(migration.diff().encode(encoding, "surrogateescape"))
        sys.stdout.buffer.flush()
