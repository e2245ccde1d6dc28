"""The facts of a running job that fixes name: the loader workers that do not come back."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..training_script.frame import StackFrame
from ..triage.rank_activity.frames import NOT_THE_USERS
from ..triage.types import JobReport

WORKER_LOOP = "_worker_loop"  # of torch
FETCH = "torch/utils/data/_utils/fetch.py"


class StuckWorker(NamedTuple):
    """A loader's worker, its rank, and its innermost line of the user's code."""

    pid: int
    rank: int | None
    frame: StackFrame

    @property
    def text(self) -> str:
        """Text such as ``Rank 0's loader worker (pid 22452) waits at data.py:14 in __getitem__.``."""
        place = f"{Path(self.frame.path).name}:{self.frame.line} in {self.frame.function}"
        return f"Rank {self.rank}'s loader worker (pid {self.pid}) waits at {place}."


def stuck_workers(report: JobReport | None) -> Iterator[StuckWorker]:
    """Yield the workers of the ranks that the others wait for that are inside of the data set and do not move."""
    culprits = set(report.verdict.culprits) if report else set()
    for seen in report.observed.seen if report else []:
        for child in seen.children:
            if seen.process.rank in culprits and child.kind == "loader" and not child.moved:
                frame = _frame_in_data_set(child.stack)
                if frame:
                    yield StuckWorker(child.pid, seen.process.rank, frame)


def loader_has_workers(report: JobReport | None) -> bool | None:
    """Return whether the loader of a job has workers, None if the job does not show it.

    A rank without workers fetches the samples itself.
    """
    seen = report.observed.seen if report else []
    if any(child.kind == "loader" for each in seen for child in each.children):
        return True
    stacks = [each.samples[-1].stack for each in seen if each.samples]
    return False if any(frame.path.endswith(FETCH) for stack in stacks for frame in stack) else None


def _frame_in_data_set(stack: list[StackFrame]) -> StackFrame | None:
    """Return the innermost frame of the user's code below the loop of a worker; outside of it are those of the rank."""
    for frame in stack:
        if frame.function == WORKER_LOOP:
            return None
        if not NOT_THE_USERS.search(frame.path):
            return frame
    return None
