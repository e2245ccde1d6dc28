"""A migration as a fix, so that it is applied and undone like one."""

from ..review.migrations.targets import TARGETS
from ..review.migrations.types import Migration
from .types import FilePatch, Fix


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
