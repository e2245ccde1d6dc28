"""The review of many files: in several processes where that is faster, with a line of progress on a terminal."""

import os
from collections.abc import Sequence

from ...knowledge.schema import Knowledge, Safety
from ..text.progress import ProgressLine
from .file_review import review_or_skip
from .files import FoundFile
from .types import ReviewedFile, SkippedFile

FILES_PER_WORKER = 20  # below that, starting processes takes longer than it saves
MOST_WORKERS = 32


def review_files(
    files: Sequence[FoundFile], knowledge: Knowledge, safeties: Sequence[Safety] = ()
) -> list[ReviewedFile | SkippedFile]:
    """Return the review of each file, in order, with its patches of these levels of safety."""
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


def _killed(file: FoundFile) -> SkippedFile:
    path = str(file.path)
    return SkippedFile(path, f"{path}: the process that reviewed it died (killed, or out of memory)", "leave it out")
