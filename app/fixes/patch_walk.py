"""The patches of a review one by one: each is accepted or skipped, and all accepted ones are written as one fix.

Nothing is written before ``write``; one ``undo`` reverts all of it. The full screen and plain mode render it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..review.file_review import review_or_skip, review_source
from ..review.files import FoundFile, files_to_review
from ..review.output_formats import place_text
from ..review.review import apply_chosen
from ..review.rule_descriptions import rules_with_texts
from ..review.settings import settings_for
from ..review.types import Patched, ReviewedFile, ReviewFinding, SkippedFile
from ..system.paths import relative_to_cwd
from ..training_script.source import read_source
from .apply import apply_fix
from .finding_fix import patched_text
from .records import AppliedFix
from .types import FilePatch, Fix


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Applied patches: the record for ``undo``, and the findings that they fix."""

    applied: AppliedFix
    done: list[ReviewFinding]


class PatchWalk:
    """The findings of a review in order, and the decision on each."""

    def __init__(self, files: Mapping[str, FoundFile], reviewed: Sequence[ReviewedFile], knowledge: Knowledge) -> None:
        self._files, self._knowledge = files, knowledge
        self.count = len(reviewed)
        self.findings = [finding for file in reviewed for finding in file.findings]
        self.accepted: set[int] = set()
        self.skipped: set[int] = set()
        self.skipped_files: list[SkippedFile] = []
        self._versions = {finding.path: _version(finding.path) for finding in self.findings}

    def has_changed_files(self) -> bool:
        """Return whether a file with findings was written since it was reviewed."""
        return any(_version(path) != version for path, version in self._versions.items())

    def take_decisions(self, earlier: "PatchWalk") -> None:
        """Decide on the findings that an earlier review had too as was decided there."""
        for decided, before in ((self.accepted, earlier.accepted), (self.skipped, earlier.skipped)):
            findings = [earlier.findings[at] for at in before]
            decided |= {at for at, finding in enumerate(self.findings) if finding in findings}

    def decide(self, at: int, accept: bool) -> int | None:
        """Record the decision on a finding; return the next one without a decision, or None after the last.

        Raises:
            UserError: It has no patch to accept.
        """
        fix = self.findings[at].fix
        if accept and not (fix and fix.edits):
            raise UserError("this finding has no patch", "n goes to the next one")
        for chosen, given in ((self.accepted, accept), (self.skipped, not accept)):
            (chosen.add if given else chosen.discard)(at)
        order = [*range(at + 1, len(self.findings)), *range(at)]
        return next((each for each in order if each not in self.accepted | self.skipped), None)

    def restart(self) -> None:
        """Forget all decisions."""
        self.accepted.clear()
        self.skipped.clear()

    def position(self, at: int) -> str:
        """Return the position of a finding: ``3 of 7``."""
        return f"{at + 1} of {len(self.findings)}"

    def progress(self) -> str:
        """Return how many findings are decided, and how."""
        left = len(self.findings) - len(self.accepted | self.skipped)
        return f"{len(self.accepted)} accepted, {len(self.skipped)} skipped, {left} left"

    def heading(self, at: int) -> str:
        """Return the place, the rule and the problem of a finding."""
        finding = self.findings[at]
        return f"{place_text(finding, column=False)}  {finding.rule}  {finding.message}"

    def patch_line(self, at: int) -> str:
        """Return the name of a finding's patch and how safe it is, or why there is none."""
        finding = self.findings[at]
        why = finding.fix.why_unsafe if finding.fix else None
        if finding.fix is None or not finding.fix.edits:
            text = rules_with_texts(self._knowledge)[finding.rule].fix
            return f"no patch, {why or 'to be done by hand'}: {text}"
        return f"patch {finding.fix.id}, {finding.fix.safety}" + (f": {why}" if why else "")

    def write(self) -> Written | None:
        """Write the accepted patches, all or none of them; return None if none is accepted.

        Raises:
            UserError: A file changed since the review, or cannot be written.
        """
        chosen = [self.findings[at] for at in sorted(self.accepted)]
        if not chosen:
            return None
        paths = dict.fromkeys(finding.path for finding in chosen)
        changes = {path: self._patched(path, [each for each in chosen if each.path == path]) for path in paths}
        applied = apply_fix(fix_of_review(changes), Path.cwd())
        return Written(applied=applied, done=[finding for each in changes.values() for finding in each.done])

    def _patched(self, path: str, chosen: Sequence[ReviewFinding]) -> Patched:
        _, text, encoding = read_source(Path(path))
        for finding in chosen:
            if patched_text(finding, text) is None:
                raise UserError(f"{relative_to_cwd(path)} changed since it was reviewed", "review it again")
        settings = self._files[path].settings
        after, done = apply_chosen(text, chosen, lambda new: review_source(new, path, settings, self._knowledge)[0])
        return Patched(before=text, after=after, encoding=encoding, done=done)


def _version(path: str) -> tuple[int, int, int] | None:
    """Return what differs once a file is written again; None if there is no such file."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def walk_patches(path: Path, knowledge: Knowledge, earlier: PatchWalk | None = None) -> PatchWalk:
    """Review a script, a notebook or a directory with the settings of its project, for a walk over its findings.

    Decisions of an earlier walk on findings that are as before stay.

    Raises:
        UserError: Nothing in it could be reviewed.
    """
    known = rules_with_texts(knowledge)
    found = [*files_to_review([path], lambda directory: settings_for(directory, known))]
    files = {str(each.path.absolute()): each for each in found if isinstance(each, FoundFile)}
    results = [review_or_skip(each.path, each.settings, knowledge) for each in files.values()]
    skipped = [each for each in (*found, *results) if isinstance(each, SkippedFile)]
    reviewed = [each for each in results if isinstance(each, ReviewedFile)]
    if skipped and not reviewed:
        raise UserError(skipped[0].message, skipped[0].next_step)
    walk = PatchWalk(files, reviewed, knowledge)
    walk.skipped_files = skipped
    if earlier:
        walk.take_decisions(earlier)
    return walk


def written_lines(written: Written | None) -> list[str]:
    """Return what a walk has changed, and how to revert it."""
    if written is None:
        return ["Nothing applied: no patch was accepted."]
    lines = [
        f"applied {finding.fix.id} ({finding.rule}) to {relative_to_cwd(finding.path)}"
        for finding in written.done
        if finding.fix
    ]
    return [*lines, f"revert with: ddpwizard undo {written.applied.id}"]


def fix_of_review(changes: Mapping[str, Patched]) -> Fix:
    """Return the patches of a review, by the path of their file, as one fix."""
    done = [finding for each in changes.values() for finding in each.done]
    return Fix(
        id="review",
        cause=Counter(finding.cause for finding in done).most_common(1)[0][0],
        title=", ".join(dict.fromkeys(finding.fix.id for finding in done if finding.fix)),
        safety="unsafe",
        patches=[FilePatch(path=path, before=each.before, after=each.after) for path, each in changes.items()],
    )
