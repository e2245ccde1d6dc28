"""Draft a lab of a team from what is known of a failure: ``lab.yaml``, and a script to be completed.

The parts that only its author knows are marked, as in a drafted entry; until they are written the lab is left out.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...knowledge.labs import Failure
from ...knowledge.schema import UNFINISHED, Knowledge
from ..diagnosis.draft_entry import EntryDraft, signature_of_line, yaml_text
from ..evidence import Diagnosis
from ..launchers.arguments import parse_launcher
from ..text.templates import render_template

SCRIPT = "train.py"
TEMPLATE = "lab_train.py.in"
MOST_GUESSES = 4
FAILURE_OF_SYMPTOM: dict[str, Failure] = {"hangs": "hang", "crashes": "crash", "wrong-or-slow": "slow"}
DEFAULT_LAUNCH = ("torchrun", "--standalone", "--nproc-per-node=2", SCRIPT)


class LabDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a new lab: ``shows`` is a pattern of its first error line, ``fix`` the first fix of its cause."""

    cause: str
    origin: str
    title: str
    story: str
    failure: Failure
    launch: str
    shows: str
    fix: str
    guesses: Sequence[str]


def build_lab_draft(entry: EntryDraft, diagnosis: Diagnosis, launch: Sequence[str], knowledge: Knowledge) -> LabDraft:
    """Build the draft of a lab of an entry, which may be a draft itself."""
    cause = knowledge.causes.get(entry.id)
    symptom = next((answer for question, answer in entry.answers if question == "symptom"), "")
    failure = FAILURE_OF_SYMPTOM.get(symptom, "crash")
    similar = [*(cause.tells_apart if cause else entry.instead_of), *(each.id for each in diagnosis.causes)]
    known = [id_ for id_ in dict.fromkeys(similar) if id_ in knowledge.causes and id_ != entry.id]
    return LabDraft(
        cause=entry.id,
        origin=entry.origin,
        title=f"{UNFINISHED} what one sees of it, without the cause.",
        story=next(iter(entry.words), f"{UNFINISHED} what a colleague reports, without the cause."),
        failure=failure,
        launch=shlex.join(_launch_here(launch)),
        shows=signature_of_line(entry.lines[0][1])[0] if entry.lines and failure == "crash" else "",
        fix=cause.fixes[0].id if cause else "as-we-did",
        guesses=known[:MOST_GUESSES],
    )


def render_lab(draft: LabDraft) -> str:
    """Render the text of ``lab.yaml``."""
    rows = [
        f"# Drafted by ddpwizard kb new --lab from {draft.origin}. Complete it and {SCRIPT}, then run: "
        "ddpwizard kb check DIRECTORY",
        f"title: {yaml_text(draft.title)}",
        "story: |",
        *(f"  {line}" for line in draft.story.splitlines()),
        f"failure: {draft.failure}  # hang, slow, crash or wrong; log: without launch, and with a log for {SCRIPT}",
        f"launch: {draft.launch}",
    ]
    if draft.failure in ("crash", "wrong"):
        shows = draft.shows or f"{UNFINISHED} a pattern in the output of the failing job"
        rows.append(f"shows: {yaml_text(shows)}")
    rows += [
        "repaired: trained [0-9]+ steps  # what only the repaired job prints",
        f"fix: {draft.fix}",
        "edits:  # what the text of this fix asks for; leave it out if the fix is a patch",
        f"  - file: {SCRIPT}",
        f"    old: {yaml_text(f'{UNFINISHED} the text with the fault')}",
        f"    new: {yaml_text(f'{UNFINISHED} the text without it')}",
        "hints:  # from general to specific",
        *(f"  - {UNFINISHED} {what}" for what in ("where to look.", "what to compare.", "what is unusual there.")),
        "guesses:  # other causes that one may suspect",
        *(f"  - {id_}" for id_ in draft.guesses or [UNFINISHED]),
    ]
    return "\n".join(rows) + "\n"


def script_text(script: Path | None) -> str:
    """Return the text of the failing script if it is known, else a small training loop without the fault."""
    if script:
        return script.read_text(encoding="utf-8", errors="replace")
    return render_template(TEMPLATE, [], {"UNFINISHED": UNFINISHED})


def _launch_here(launch: Sequence[str]) -> Sequence[str]:
    """Return a command line for two processes on this machine; the arguments of the script stay."""
    started = parse_launcher(launch) if launch else None
    return (*DEFAULT_LAUNCH, *(started.script_arguments if started else ()))
