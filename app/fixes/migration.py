"""A migration of a script as a fix: read, shown with its notes, written, and undone like one."""

import ast
import shlex
from pathlib import Path

from ..errors import UserError
from ..launchers.torchrun import OWN_STORE_VARIABLE
from ..review.migrations.engine import migrate
from ..review.migrations.resume import STEPS_BETWEEN
from ..review.migrations.targets import TARGETS
from ..review.migrations.types import Migration, Note
from ..system.paths import relative_to_cwd
from ..training_script.source import ScriptSource, read_source
from .apply import apply_fix
from .records import AppliedFix
from .types import FilePatch, Fix

OPTION = " --to "
STARTS_RANKS = ("init_process_group", "init_device_mesh", "fully_shard")


def split_target(typed: str) -> tuple[str, str]:
    """Return the path and the target of ``train.py --to ddp``; the target is "" where none is given.

    Raises:
        UserError: There is no such target.
    """
    path, _, target = (part.strip() for part in typed.partition(OPTION))
    if target and target not in TARGETS:
        raise UserError(f"{target}: no such target", f"give one of {', '.join(TARGETS)}")
    return path, target


def migrate_script(path: Path, target: str) -> Migration:
    """Return the migration of a script.

    Raises:
        UserError: It is not one script, or it cannot be read.
    """
    if path.is_dir():
        raise UserError("--to migrates one script", "give the file with the training loop")
    _, text, _ = read_source(path)
    return migrate(text, str(path), target)


def note_lines(migration: Migration) -> list[str]:
    """Return why a script is not migrated, or what differs afterwards, with places."""
    kinds = (("not migrated", migration.refusals), ("note", migration.reports))
    return [_note_line(migration, kind, note) for kind, notes in kinds for note in notes]


def changes_script(migration: Migration) -> bool:
    """Return whether there is anything to write."""
    return migration.after != migration.before


def outcome_line(migration: Migration) -> str:
    """Return what a migration comes to before it is written: refused, nothing to change, or how to try it."""
    path = relative_to_cwd(migration.path)
    if migration.refusals:
        return f"{path}: not migrated to {migration.target}, nothing changes"
    if not changes_script(migration):
        return f"{path}: nothing to change for {migration.target}"
    if migration.target != "resume":
        return f"try it with: {_torchrun_line(migration)}"
    saves = f"it saves every {STEPS_BETWEEN} optimizer steps (every= in the script: lower it to try a short run)"
    if not any(name in migration.before for name in STARTS_RANKS):
        return f"{saves}; try it: start the script as before, end it when it has saved, and start it again"
    line = _torchrun_line(migration, "--max-restarts=3 ")
    return f"{saves}; try it: end a rank when it has saved, under: {OWN_STORE_VARIABLE}=1 {line}"


def _torchrun_line(migration: Migration, options: str = "") -> str:
    """Return the command that starts the script on two ranks, and the directory where it starts if that is another."""
    module, directory = _as_module(migration)
    start = f"torchrun --standalone --nproc-per-node=2 {options}"
    if not module:
        return start + shlex.quote(relative_to_cwd(migration.path))
    place = f", in {relative_to_cwd(str(directory))}" if directory != Path.cwd() else ""
    return f"{start}-m {module}{place}"


def _as_module(migration: Migration) -> tuple[str, Path]:
    """Return how ``python -m`` names a script with relative imports, and where it starts; "" for any other script."""
    source = ScriptSource.tolerant(migration.before, migration.path)
    levels = [node.level for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)]
    path = Path(migration.path).absolute()
    names, directory = [path.stem], path.parent
    if not max(levels, default=0):
        return "", directory
    while len(names) <= max(levels) or (directory / "__init__.py").is_file():
        names, directory = [directory.name, *names], directory.parent
    return ".".join(names), directory


def written_line(migration: Migration, applied: AppliedFix) -> str:
    """Return that a migration is written, and how to revert it."""
    path = relative_to_cwd(migration.path)
    return f"migrated {path} to {migration.target}; revert with: ddpwizard undo {applied.id}"


def write_migration(migration: Migration) -> AppliedFix:
    """Write the migrated script.

    Raises:
        UserError: It changed since it was read, or cannot be written.
    """
    return apply_fix(fix_of_migration(migration), Path.cwd())


def fix_of_migration(migration: Migration) -> Fix:
    """Return the change of a migration as a fix of one file."""
    return Fix(
        id=f"to-{migration.target}",
        cause="",
        title=TARGETS[migration.target],
        safety="unsafe",
        why_unsafe="it changes how the script trains: run it on one rank and on two, and compare the losses",
        patches=[FilePatch(path=migration.path, before=migration.before, after=migration.after)],
    )


def _note_line(migration: Migration, kind: str, note: Note) -> str:
    return f"{relative_to_cwd(migration.path)}:{note.line}: {kind}: {note.message}"
