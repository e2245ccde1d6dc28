"""The jobs of this machine over one run of the wizard: their code as first seen, and their earlier samples."""

from collections.abc import Sequence

from .merge_samples import add_first_sources, extend_with_earlier_samples, keep_first_sources
from .types import JobReport


class JobHistory:
    """The earlier samples of each job, shared by all screens."""

    def __init__(self) -> None:
        self._first: dict[str, JobReport] = {}  # by job id, with the source files as first seen
        self._last: dict[str, JobReport] = {}  # by job id, with the earlier samples that are still needed

    def extend(self, reports: Sequence[JobReport], *, of_all_jobs: bool) -> list[JobReport]:
        """Return the reports, judged with the code as first seen and with the earlier samples.

        ``of_all_jobs``: a job without a report is gone, and so is its history.
        """
        found: list[JobReport] = []
        for report in reports:
            id_ = report.job.id
            first, last = self._first.get(id_), self._last.get(id_)
            self._first[id_] = add_first_sources(first, report)
            self._last[id_] = extend_with_earlier_samples(last, keep_first_sources(first, report))
            found.append(self._last[id_])
        if of_all_jobs:
            present = {report.job.id for report in reports}
            for kept in (self._first, self._last):
                for gone in kept.keys() - present:
                    del kept[gone]
        return found
