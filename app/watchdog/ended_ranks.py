"""The end of a rank: from the record that it wrote itself, and the exit status that was observed."""

import signal
from collections.abc import Callable, Sequence

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
    def left(self) -> bool:
        """True if it ended normally by itself, as one of the ranks."""
        return self.record.rank is not None and self.record.ended == NORMAL and not self.failed

    @property
    def end(self) -> str:
        """The verb of its end as the first one of the job, before its name or its reason."""
        return "left first" if self.left else "died first"

    @property
    def reason(self) -> str:
        """The exception, else the exit status."""
        if self.left:
            return "it ended without an error while others waited for it"
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


def first_ended(ended: Sequence[EndedRank], shows_lost_rank: Callable[[str], bool]) -> EndedRank | None:
    """Return the rank with whose end the failure of a job began, or None if none failed.

    It is the failed rank that ended first. If its error shows only that another rank is gone (``shows_lost_rank``), and
    a rank ended normally before, it is that one: it left while the others still waited for it.
    """
    failed = first_failed(ended)
    if failed is None or failed.killed_by or not shows_lost_rank(failed.error):
        return failed
    left = [rank for rank in ended if rank.left and 0 < rank.at <= failed.at]
    return min(left, key=lambda rank: rank.at, default=failed)


def first_failed(ended: Sequence[EndedRank]) -> EndedRank | None:
    """Return the failed rank that ended first, or None.

    A rank that was killed comes before an error that another one recorded at about that time: the error is likely its
    consequence, and the end of a killed rank is observed a little late.
    """
    failed = sorted((rank for rank in ended if rank.failed and rank.at), key=lambda rank: rank.at)
    killed = [rank for rank in failed if rank.killed_by not in LAUNCHERS and rank.at <= failed[0].at + LATE_S]
    return next(iter(killed or failed), None)
