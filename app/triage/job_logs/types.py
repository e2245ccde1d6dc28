"""What the logs of one job say, as plain data: each fact with its rank and line, and each rank's last words."""

from typing import Literal

import msgspec

LogEventKind = Literal[
    "nccl-init",  # a stage of NCCL's start-up (stage; comm, member, of)
    "nccl-version",
    "watchdog",  # a collective that ran out of time (seq, op, numel_in, numel_out, timeout_ms, group, pg)
    "work",  # the last enqueued and completed work of a group (enqueued, completed, group, pg)
    "stuck",  # the watchdog itself, or the GIL, stood still
    "signal-from",  # another rank gave the signal to dump (from)
    "nccl-error",
    "gloo-timeout",  # (timeout_ms, operation)
    "peer-closed",  # (peer)
    "size",  # gloo: what came in does not fit (got, expected)
    "mismatch",  # two ranks' collectives that differ (one, seq, op, shape, dtype; other, other_op …)
    "absent",  # monitored_barrier names who did not come (absent, timeout_ms)
    "desync",  # TORCH_NCCL_DESYNC_DEBUG names who lags (never; or started, ended and seq, last)
    "store-timeout",  # (timeout_ms, key) or (joined, of)
    "traceback",  # a Python exception (exception, location, collective; follows: only what happened elsewhere)
    "exit",  # the launcher says that a process has ended (code, pid, signal)
    "root-cause",  # the first one, by torchrun's own summary
    "killed",  # ended by the kernel or a signal, as the system says it (pid, signal)
]


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that stands in a log, at ``where`` (path:line). ``rank`` is whom it is about; None: not known.

    ``at`` is its time in seconds since the epoch, where one stands on the line or shortly before it.
    """

    kind: LogEventKind
    text: str
    where: str
    rank: int | None = None
    at: float | None = None
    values: dict[str, str] = {}


class RankLog(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of the log. ``silent_since`` is the time of its last line (epoch): the line's own, or that of the
    last write to a file that is the rank's alone."""

    rank: int
    host: str
    last: str
    last_where: str
    silent_since: float | None = None
    step: int | None = None
    epoch: int | None = None
    step_where: str = ""


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from the logs of one job: its last attempt. ``first`` is the rank that showed an error of its own
    before all others, and where. ``whole``: few enough speak in one text that none is left out; else nothing can be
    told from what a rank does not say."""

    files: list[str]
    read_at: float = 0.0
    attempts: int = 1
    world_size: int | None = None
    facts: list[LogEvent] = []
    ranks: list[RankLog] = []
    first: int | None = None
    first_where: str = ""
    whole: bool = True

    def of(self, *kinds: LogEventKind) -> list[LogEvent]:
        """The facts of these kinds, in the order of the log."""
        return [fact for fact in self.facts if fact.kind in kinds]
