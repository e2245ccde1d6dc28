"""The facts of a running job and of its machine that fixes name, such as ranks, addresses and stuck loader workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..launchers.rank_variables import local_world_size
from ..snapshot import Snapshot
from ..system.paths import relative_to_cwd
from ..text.units import rank_ranges
from ..training_script.frame import StackFrame
from ..triage.other_hosts import runs_on_one_node
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


def job_values(report: JobReport | None) -> Iterator[tuple[str, str]]:
    """Yield the named values that a job and the verdict on it determine; some may be empty."""
    if report is None:
        return
    verdict, job = report.verdict, report.job
    culprits = [each for each in job.processes if each.rank in verdict.culprits]
    others = sorted({each.rank for each in job.processes if each.rank is not None} - set(verdict.culprits))
    environ = job.processes[0].environ if job.processes else {}
    address, _, port = job.master.rpartition(":")
    yield "ranks", str(report.world_size)
    on_node = report.world_size if is_started_by_hand(report) else len(job.processes)
    yield "ranks_per_node", str(local_world_size(environ) or on_node or report.world_size)
    yield "rank", rank_ranges(verdict.culprits) if verdict.culprits else ""
    yield "other_ranks", rank_ranges(others) if others and verdict.culprits else ""
    yield "pid", next((str(each.pid) for each in culprits or job.processes), "")
    yield "collective", verdict.collective or ""
    yield "where", relative_to_cwd(verdict.where or "")
    yield "condition", relative_to_cwd(verdict.branch or "")
    yield "host", next((row.host for row in report.ranks if row.rank in verdict.culprits), job.host)
    yield "master_addr", "" if address.startswith("127.") else address
    yield "port", port
    yield "nodes", str(len(report.nodes)) if len(report.nodes) > 1 else ""
    yield "directory", job.processes[0].cwd if job.processes else ""


def machine_values(snapshot: Snapshot | None, report: JobReport | None) -> Iterator[tuple[str, str]]:
    """Yield the named values that a machine determines; some may be empty."""
    if snapshot is None:
        return
    from ..hardware.machine import machine_from_snapshot  # reads the catalogs of GPUs

    machine = machine_from_snapshot(snapshot)
    yield "interface", machine.interface
    yield "master_addr", machine.head
    yield "gpus", str(machine.gpu_count or "")
    yield "cpus", str(machine.cpus or "")
    if machine.cpus:
        ranks = report.world_size if report else machine.ranks
        yield "workers", str(max(1, machine.cpus // max(1, ranks) - 1))


def is_started_by_hand(report: JobReport) -> bool:
    """Return whether no launcher started the ranks, which all belong on one machine."""
    return report.job.launcher == "python" and runs_on_one_node(report) is True


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
