"""``ddpwizard review --to TARGET SCRIPT``: migrate a script, show the change, write it with ``--fix``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..exit_codes import ExitCode
from ..fixes.apply import apply_fix
from ..fixes.migration import fix_of_migration
from ..options import Options
from ..review.migrations.engine import migrate
from ..review.migrations.types import Migration, Note
from ..system.paths import relative_to_cwd
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
    if len(paths) != 1 or paths[0].is_dir():
        raise UserError("--to migrates one script", "give the file with the training loop")
    _, text, encoding = read_source(paths[0])
    migration = migrate(text, str(paths[0]), target)
    applied = ""
    if fix and migration.after != text:
        applied = apply_fix(fix_of_migration(migration), Path.cwd()).id
    if options.json:
        print_json(public_document("migration", knowledge, _as_json(migration, applied)))
    elif diff:
        _print_notes(migration, on_stderr=True)
        _print_diff(migration, encoding)
    else:
        _print_all(migration, applied)
    return ExitCode.FOUND if migration.refusals else ExitCode.OK


def _as_json(migration: Migration, applied: str) -> dict[str, object]:
    return {
        "target": migration.target,
        "path": str(Path(migration.path).absolute()),
        "refusals": [note._asdict() for note in migration.refusals],
        "reports": [note._asdict() for note in migration.reports],
        "diff": migration.diff(),
        "applied": applied or None,
    }


def _print_all(migration: Migration, applied: str) -> None:
    path = relative_to_cwd(migration.path)
    if not migration.refusals:
        print_patch(migration.diff())
    _print_notes(migration, on_stderr=False)
    if migration.refusals:
        return
    if applied:
        print_line(f"migrated {path} to {migration.target}; revert with: ddpwizard undo {applied}")
    elif migration.after == migration.before:
        print_line(f"{path}: nothing to change for {migration.target}")
    else:
        print_line(f"--fix writes it, ddpwizard undo reverts it; try: torchrun --standalone --nproc-per-node=2 {path}")


def _print_notes(migration: Migration, *, on_stderr: bool) -> None:
    show = print_progress if on_stderr else print_line
    for kind, notes in (("not migrated", migration.refusals), ("note", migration.reports)):
        for note in notes:
            show(_note_line(migration, kind, note))


def _note_line(migration: Migration, kind: str, note: Note) -> str:
    return f"{relative_to_cwd(migration.path)}:{note.line}: {kind}: {note.message}"


def _print_diff(migration: Migration, encoding: str) -> None:
    if sys.stdout.isatty():
        print_patch(migration.diff())
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(migration.diff().encode(encoding, "surrogateescape"))
        sys.stdout.buffer.flush()
