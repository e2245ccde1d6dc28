"""The review of the plain wizard: the findings one by one, each patch accepted or skipped; or a migration."""

from pathlib import Path

from ...app.diagnosis.script_evidence import review_summary, take_findings
from ...app.errors import UserError
from ...app.fixes.migration import (
    changes_script,
    migrate_script,
    note_lines,
    outcome_line,
    split_target,
    write_migration,
    written_line,
)
from ...app.fixes.patch_walk import PatchWalk, walk_patches, written_lines
from ...app.system.files import expand_user
from ..shell.state import WizardState
from .prompt import Prompt

ANSWERS = {"y": "accept the patch", "n": "skip it", "s": "stop, and write what is accepted"}


def review_path(state: WizardState, prompt: Prompt, typed: str) -> bool:
    """Review a script, a notebook or a directory into the case, and go through its findings.

    A path with ``--to`` migrates the script instead; return whether the case was reviewed.

    Raises:
        UserError: Nothing in it could be reviewed, or the patches cannot be written.
        EndOfInput: Standard input has ended; nothing is written then.
    """
    given, target = split_target(typed.strip())
    path = expand_user(given)
    if target:
        _migrate(path, target, prompt)
        return False
    walk = walk_patches(path, state.knowledge)
    take_findings(state.case, path, walk.findings)
    prompt.write("", review_summary(path, walk.findings, len(state.knowledge.rules)))
    for each in walk.skipped_files:
        prompt.write(f"  left out: {each.message}")
    if any(each.fix and each.fix.edits for each in walk.findings):
        _review_findings(walk, prompt)
        try:
            lines = written_lines(walk.write())
        except UserError as error:
            lines = [f"{error.message} → {error.next_step}"]
        prompt.write("", *(f"  {line}" for line in lines))
    return True


def _migrate(path: Path, target: str, prompt: Prompt) -> None:
    """Show a migration with what is not kept, and write it if it is accepted."""
    migration = migrate_script(path, target)
    prompt.write("", *(f"  {line}" for line in note_lines(migration)), f"  {outcome_line(migration)}")
    if not changes_script(migration):
        return
    prompt.show_patch(migration.diff())
    if prompt.confirm(f"Write the migration to {target}?", default=False):
        prompt.write(f"  {written_line(migration, write_migration(migration))}")
    else:
        prompt.write("  Nothing written.")


def _review_findings(walk: PatchWalk, prompt: Prompt) -> None:
    for at, finding in enumerate(walk.findings):
        prompt.write(
            "", f"{walk.position(at)}  {walk.heading(at)}", f"  why: {finding.why}", f"  {walk.patch_line(at)}"
        )
        if not (finding.fix and finding.fix.edits):
            continue
        prompt.show_patch(finding.fix.diff)
        given = prompt.choose([], ANSWERS, "Accept this patch? ")
        if given == "s":
            return
        walk.decide(at, given == "y")
