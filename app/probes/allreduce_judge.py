"""Progress of the ranks of the all-reduce test and the verdict over it: pure functions."""

import re
import signal
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from ..snapshot import BenchRow
from ..text.units import bytes_text, ranks_text

Ended = Literal["done", "failed", "hung"]
TIMED_OUT = re.compile(r"Timed out waiting|collective operation timeout|timed out after|Timed out after|DistStoreError")
EXIT_ENTRY = re.compile(r"^\s+(rank|exitcode)\s+: (-?\d+)")
CLOSED_FROM_OUTSIDE = -int(signal.SIGTERM)  # how torchrun ends the other ranks


class RankProgress(msgspec.Struct):
    """Progress of one rank so far. ``process_state``: the letter of /proc when its process was last seen."""

    pid: int | None = None
    joined: bool = False
    call: int = -1
    call_bytes: int = 0
    rows: list[dict[str, Any]] = []
    done: bool = False
    error: str = ""
    error_at: float = 0.0
    process_state: str = ""
    exit_code: int | None = None  # as torchrun reports it; negative: the signal

    def take(self, event: Mapping[str, Any]) -> None:
        """Add one event of the rank."""
        kind = event["event"]
        if kind == "started":
            self.pid = event["pid"]
        elif kind == "joined":
            self.joined = True
        elif kind == "call":
            self.call, self.call_bytes = event["call"], event["bytes"]
        elif kind == "row":
            self.rows = [*self.rows, dict(event)]
        elif kind == "done":
            self.done = True
        elif kind == "error":
            self.error, self.error_at = event["message"], event["at"]

    @property
    def progress(self) -> tuple[bool, bool, int]:
        """Progress of the rank, comparable between ranks."""
        return self.pid is not None, self.joined, self.call

    @property
    def stage(self) -> str:
        """Progress of the rank as text."""
        if self.call >= 0:
            return f"in all-reduce {self.call} ({bytes_text(self.call_bytes)})"
        return "joining the others" if self.pid is not None else "starting up"


def all_reduce_verdict(
    logs: Mapping[int, RankProgress], timed_out: bool, launcher_line: str = ""
) -> tuple[Ended, list[int], str]:
    """Return how the test ended, the ranks at fault, and the reason as a sentence (empty if all went well)."""
    if all(log.done for log in logs.values()):
        return _checked(logs)
    stopped = [rank for rank, log in logs.items() if log.process_state in ("T", "t") and not log.done]
    if stopped:
        return "hung", stopped, f"{_were(stopped)} stopped (by a signal or a debugger) while {logs[stopped[0]].stage}"
    killed = [rank for rank, log in logs.items() if _killed(log)]
    if killed:
        number = -(logs[killed[0]].exit_code or 0)
        return "failed", killed, f"{_were(killed)} ended by {_signal_text(number)} while {logs[killed[0]].stage}"
    first = min((rank for rank, log in logs.items() if log.error), key=lambda r: logs[r].error_at, default=None)
    if timed_out or (first is not None and TIMED_OUT.search(logs[first].error)):
        return "hung", *_slowest_ranks(logs)
    if first is not None:
        error = logs[first].error
        same = [rank for rank, log in logs.items() if log.error == error]
        return "failed", same, f"{ranks_text(same)} failed while {logs[first].stage}: {error}"
    ended = [rank for rank, log in logs.items() if log.exit_code and log.exit_code != CLOSED_FROM_OUTSIDE]
    if ended:
        return (
            "failed",
            ended,
            f"{ranks_text(ended)} ended with code {logs[ended[0]].exit_code} while {logs[ended[0]].stage}",
        )
    return "failed", [], f"torchrun ended before the ranks had run the test: {launcher_line}"


def _checked(logs: Mapping[int, RankProgress]) -> tuple[Ended, list[int], str]:
    for rank, log in logs.items():
        for row in log.rows:
            if row["wrong"]:
                ranks = [r for r, other in logs.items() if any(entry["wrong"] for entry in other.rows)]
                mismatch = (
                    f"{row['wrong']} of {row['bytes'] // 4} elements wrong on rank {rank} at "
                    f"{bytes_text(row['bytes'])}: number {row['first']} should be {row['should']:g} and is {row['got']}"
                )
                return "done", ranks, mismatch
    return "done", [], ""


def _slowest_ranks(logs: Mapping[int, RankProgress]) -> tuple[list[int], str]:
    """The ranks with the least progress; none if all have the same."""
    left = {rank: log for rank, log in logs.items() if not log.done}
    least = min(log.progress for log in left.values())
    behind = [rank for rank, log in left.items() if log.progress == least]
    others = [rank for rank in logs if rank not in behind]
    if others:
        ahead = max((logs[rank] for rank in others), key=lambda log: log.progress)
        return behind, f"{_were(behind)} still {left[behind[0]].stage}, {ranks_text(others)} {ahead.stage}"
    return [], f"all {len(logs)} ranks were {left[behind[0]].stage}: no data arrives between them"


def _killed(log: RankProgress) -> bool:
    return not log.error and log.exit_code is not None and log.exit_code < 0 and log.exit_code != CLOSED_FROM_OUTSIDE


def _were(ranks: list[int]) -> str:
    return f"{ranks_text(ranks)} {'was' if len(ranks) == 1 else 'were'}"


def _signal_text(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def parse_exit_codes(torchrun: Iterable[str]) -> dict[int, int]:
    """Parse rank and exit code from the table that torchrun prints after a failure."""
    codes: dict[int, int] = {}
    rank: int | None = None
    for line in torchrun:
        match = EXIT_ENTRY.match(line)
        if match and match[1] == "rank":
            rank = int(match[2])
        elif match and rank is not None:
            codes[rank] = int(match[2])
    return codes


def build_bench_rows(backend: str, logs: Mapping[int, RankProgress]) -> list[BenchRow]:
    """Return one row per size that every rank finished. ``seconds``: the slowest rank's median; GB: powers of ten."""
    ranks = len(logs)
    rows: list[BenchRow] = []
    for of_ranks in zip(*(log.rows for log in logs.values()), strict=False):
        size, seconds = of_ranks[0]["bytes"], max(row["seconds"] for row in of_ranks)
        algbw = size / seconds / 1e9
        rows.append(
            BenchRow(
                operation="all_reduce",
                backend=backend,
                ranks=ranks,
                bytes=size,
                seconds=seconds,
                algbw_gbps=algbw,
                busbw_gbps=algbw * 2 * (ranks - 1) / ranks,
                correct=not any(row["wrong"] for row in of_ranks),
            )
        )
    return rows
