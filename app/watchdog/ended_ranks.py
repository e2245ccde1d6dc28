"""The end of a rank: from the record that it wrote itself, and the exit status that was observed."""

import signal
from collections.abc import Sequence

import msgspec

from ..logs.tracebacks import HEADER
from ..system.run_directory import RankRecordFile
from .exit_events import ProcessExit

LAUNCHERS = (0, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # how a launcher ends the other ranks, or no signal
LATE_S = 5.0  # less than the 30 s after which a launcher kills
NORMAL = "exit"  # what a rank records as its end if no error ended it


class EndedRank(msgspec.Struct, frozen=True):
    """A rank that has ended: its record, and its observed end if there was one."""

    record: RankRecordFile
    observed: ProcessExit | None

    @property
    def name(self) -> str:
        return rank_name(self.record)

    @property
    def at(self) -> float:
        """The time of the end from the rank's record, else the observed one; 0 if neither is known."""
        return self.record.ended_at or (self.observed.at if self.observed else 0.0)

    @property
    def failed(self) -> bool:
        """True if it did not end normally."""
        if self.observed and self.observed.status is not None:
            return bool(self.observed.status)
        return self.record.ended != NORMAL

    @property
    def killed_by(self) -> int:
        """The number of the signal that ended it, 0 if none is known."""
        return (self.observed.status or 0) & 0x7F if self.observed else 0

    @property
    def error(self) -> str:
        """The exception that ended it, or ""."""
        return "" if self.record.ended == NORMAL else self.record.ended

    @property
    def reason(self) -> str:
        """The exception, else the exit status."""
        return self.error or (self.observed.how if self.observed else "") or "no exit status"


def without_traceback(reason: str) -> str:
    """Return an error without a traceback in its message, as that of a data loader's worker has: the job prints it."""
    head, header, traceback = reason.partition(HEADER)
    if not header:
        return reason
    before = head.rpartition("\n")[0].strip()
    return "\n".join(filter(None, [before, traceback.strip().rpartition("\n")[2]]))


def rank_name(record: RankRecordFile) -> str:
    """Return ``rank 1 (pid 4711)``, or only the pid of a process that is no rank yet."""
    return f"rank {record.rank} (pid {record.pid})" if record.rank is not None else f"pid {record.pid}"


def first_failed(ended: Sequence[EndedRank]) -> EndedRank | None:
    """Return the failed rank that ended first, or None.

    A rank that was killed comes before an error that another one recorded at about that time: the error is likely its
    consequence, and the end of a killed rank is observed a little late.
    """
    failed = sorted((rank for rank in ended if rank.failed and rank.at), key=lambda rank: rank.at)
    killed = [rank for rank in failed if rank.killed_by not in LAUNCHERS and rank.at <= failed[0].at + LATE_S]
    return next(iter(killed or failed), None)
