"""The fix of one finding of the review: its own patch, or the place with what to change there by hand."""

from pathlib import Path

import msgspec

from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..review.patches.apply_edits import OverlappingEdits, apply_edits
from ..review.rule_descriptions import rules_with_texts
from ..review.types import ReviewFinding
from ..system.paths import relative_to_cwd
from ..text.diff import unified_diff
from ..training_script.source import NEWLINE, read_source
from .types import FilePatch, Fix, Place

CHANGED = "the file has changed since it was reviewed: review it again"


def fix_of_finding(finding: ReviewFinding, knowledge: Knowledge) -> Fix:
    """Return the fix of a finding, without a patch if it has none or if its file has changed since."""
    rule, path = rules_with_texts(knowledge)[finding.rule], Path(finding.path)
    try:
        before = read_source(path)[1]
    except UserError:
        before = ""
    has_patch = finding.fix is not None and bool(finding.fix.edits)
    after = patched_text(finding, before) if has_patch else None
    reason = "" if after is not None else CHANGED if has_patch else finding.fix.why_unsafe if finding.fix else ""
    shown = dict(enumerate(NEWLINE.split(before), 1)).get(finding.line, "").strip()
    fix = Fix(
        id=f"{finding.rule.lower()}-{path.stem}-{finding.line}",
        cause=finding.cause,
        title=rule.fix[:1].upper() + rule.fix[1:],
        safety="display",
        text=f"{finding.message}\n\nNo patch: {reason}." if reason else finding.message,
        places=[Place(path=finding.path, line=finding.line, text=shown, label=finding.rule)],
    )
    if finding.fix is None or after is None:
        return fix
    patch = FilePatch(path=finding.path, before=before, after=after)
    return msgspec.structs.replace(
        fix, safety=finding.fix.safety, why_unsafe=finding.fix.why_unsafe or "", patches=[patch]
    )


def patched_text(finding: ReviewFinding, text: str) -> str | None:
    """Return a text with the patch of a finding; None if it is not the same change as in the text that was reviewed."""
    if finding.fix is None:
        return None
    try:
        after = apply_edits(text, finding.fix.edits)
    except OverlappingEdits:
        return None
    return after if unified_diff(text, after, relative_to_cwd(finding.path)) == finding.fix.diff else None
