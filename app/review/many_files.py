"""The review of many files: in several processes where that is faster, with a line of progress on a terminal."""

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from ...knowledge.schema import Knowledge, Safety
from ..text.progress import ProgressLine
from ..training_script.model.users import unchanged_files
from .file_review import review_or_skip
from .files import FoundFile
from .rules.divergences import RULES as OF_CALLS
from .types import ReviewedFile, ReviewFinding, SkippedFile
from .violations import THERE

FILES_PER_WORKER = 20  # below that, starting processes takes longer than it saves
MOST_WORKERS = 32
# New objects between two collections of garbage, and collections of younger objects between two of older ones: all
# that a review makes is freed without one (``Script.forget``).
COLLECTIONS = 1_000_000, 5, 3


def review_files(
    files: Sequence[FoundFile], knowledge: Knowledge, safeties: Sequence[Safety] = ()
) -> list[ReviewedFile | SkippedFile]:
    """Return the review of each file, in order, with its patches of these levels of safety."""
    # The scripts of the directories above a module use it, and what their review finds is kept for that of the module;
    # the files of one directory import the same modules.
    order = sorted(range(len(files)), key=lambda index: (files[index].path.parent.parts, files[index].path.name))
    with _rare_collections(), unchanged_files():
        reviewed = _review_files([files[index] for index in order], knowledge, safeties)
    return _once_each([each for _, each in sorted(zip(order, reviewed, strict=True), key=lambda pair: pair[0])])


def _once_each(reviewed: list[ReviewedFile | SkippedFile]) -> list[ReviewedFile | SkippedFile]:
    """Leave out a finding at a call that leads to the place of another finding of its rule, in another file.

    Of several calls that lead to a place without a finding of its own, the first one is left.
    """
    files = [each for each in reviewed if isinstance(each, ReviewedFile)]
    places = {
        (finding.rule, file.path, line)
        for file in files
        for finding in file.findings
        for line in (finding.line, finding.branch)
    }

    def is_elsewhere(finding: ReviewFinding) -> bool:
        there = {
            (finding.rule, each.path, each.line)
            for each in finding.related
            if each.message == THERE and each.path != finding.path
        }
        known = not there.isdisjoint(places)
        if finding.rule in OF_CALLS:
            places.update(there)
        return known

    for place, file in enumerate(reviewed):
        left_out = [is_elsewhere(finding) for finding in file.findings] if isinstance(file, ReviewedFile) else []
        if isinstance(file, ReviewedFile) and any(left_out):
            pairs = zip(file.findings, file.excerpts, left_out, strict=True)
            kept = [(finding, excerpt) for finding, excerpt, known in pairs if not known]
            findings, excerpts = [each for each, _ in kept], [each for _, each in kept]
            reviewed[place] = msgspec.structs.replace(file, findings=findings, excerpts=excerpts)
    return reviewed


def _review_files(
    files: Sequence[FoundFile], knowledge: Knowledge, safeties: Sequence[Safety]
) -> list[ReviewedFile | SkippedFile]:
    progress = ProgressLine(lambda done: f"reviewed {done:,} of {len(files):,} files")

    def review(file: FoundFile) -> ReviewedFile | SkippedFile:
        return review_or_skip(file.path, file.settings, knowledge, safeties)

    workers = min(len(os.sched_getaffinity(0)), MOST_WORKERS, len(files) // FILES_PER_WORKER)
    if workers > 1:
        from .workers import work_on  # multiprocessing takes 20 ms to import

        try:
            return work_on(files, review, _killed, progress.draw, workers)
        finally:
            progress.clear()
    reviewed: list[ReviewedFile | SkippedFile] = []
    with progress.drawn_by_thread():
        for file in files:
            reviewed.append(review(file))
            progress.done += 1
    return reviewed


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Search for garbage less often: most objects are nodes of syntax trees, which reference counts free."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.freeze()  # what is kept goes to the oldest generation: no search through all of it at the next allocation
        gc.set_threshold(*before)
        gc.unfreeze()


def _killed(file: FoundFile) -> SkippedFile:
    path = str(file.path)
    return SkippedFile(path, f"{path}: the process that reviewed it died (killed, or out of memory)", "leave it out")
