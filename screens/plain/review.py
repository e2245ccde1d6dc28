"""The review of the plain wizard: the findings one by one, each patch accepted or skipped, then written together."""

from ...app.diagnosis.script_evidence import review_summary, take_findings
from ...app.errors import UserError
from ...app.fixes.patch_walk import PatchWalk, walk_patches, written_lines
from ...app.system.files import expand_user
from ..shell.state import WizardState
from .prompt import Prompt

ANSWERS = {"y": "accept the patch", "n": "skip it", "s": "stop, and write what is accepted"}


def review_path(state: WizardState, prompt: Prompt, typed: str) -> None:
    """Review a script, a notebook or a directory into the case, and go through its findings.

    Raises:
        UserError: Nothing in it could be reviewed, or the patches cannot be written.
        EndOfInput: Standard input has ended; nothing is written then.
    """
    path = expand_user(typed.strip())
    walk = walk_patches(path, state.knowledge)
    take_findings(state.case, path, walk.findings)
    prompt.write("", review_summary(path, walk.findings, len(state.knowledge.rules)))
    for each in walk.skipped_files:
        prompt.write(f"  left out: {each.message}")
    if any(each.fix and each.fix.edits for each in walk.findings):
        _go_through(walk, prompt)
        try:
            lines = written_lines(walk.write())
        except UserError as error:
            lines = [f"{error.message} → {error.next_step}"]
        prompt.write("", *(f"  {line}" for line in lines))


def _go_through(walk: PatchWalk, prompt: Prompt) -> None:
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
