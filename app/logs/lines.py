"""Parse the prefixes of log lines: the writer, the time, and the remaining text.

Launchers and loggers put prefixes before a line, often several: ``[rank3]:``, ``[default0]:``, Slurm's ``3: ``,
``worker-1: `` of pdsh, ``[pod/job-0/main] ``, ``name | `` of docker compose, NCCL's ``host:pid:tid [gpu]``, glog's and
the usual times. Ambiguous prefixes (``3: ``, ``worker-1: ``, ``name | ``) count only in texts where most lines have
them: see ``PrefixStyle``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from .types import Writer

MOST_PREFIXES = 6
PREFIX = re.compile(
    r"""
      \[rank:?[ ]?(?P<rank>\d{1,6})\](?::[ ]?|[ ])?
    | \[(?P<role>[a-z_]{1,24})(?P<local>\d{1,6})\]:[ ]?
    | \[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err)>:[ ]?
    | \[(?P<std>\d{1,6})\]<std(?:out|err)>:[ ]?
    | \[pod/(?P<pod>[^\s/\]]{1,100})(?:/[^\s\]]{1,100})?\][ ]?
    | \([\w.]{1,60}[ ]pid=(?P<pid>\d{1,10})(?:,[ ]ip=(?P<ip>[\da-fA-F.:]{3,45}))?\)[ ]?
    | \[?[EWIFCD](?P<month>\d{1,2})(?P<day>\d\d)[ ](?P<clock>\d\d:\d\d:\d\d(?:\.\d{1,9})?)[ ][^\]\n]{1,120}\][ ]?
    | \[(?:PG[ ][^\]\n]{0,160}[ ])?Rank[ ](?P<own>\d{1,6})\][ ]?
    | \[?(?:\d{4})[-/](?P<imonth>\d\d)[-/](?P<iday>\d\d)[ T_](?P<iclock>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)
      (?:Z|[+-]\d\d:?\d\d)?\]?(?:[ ]std(?:out|err)[ ][FP](?=[ ]))?(?:[ ]-(?=[ ]))?[ ]?
    | \[?(?P<umonth>\d\d)/(?P<uday>\d\d)/\d{4}[ ](?P<uclock>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)\]?(?:[ ]-(?=[ ]))?[ ]?
    | \[\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\][ ]?
    | \[[\w.]{1,60}\.py:\d{1,6}(?::\w{1,60})?\][ ](?=\[Rank)
    | \[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\][ ](?=\[)
    """,
    re.VERBOSE,
)
STARTS = frozenset("[(EWIFCD0123456789")
NCCL = re.compile(
    r"(?P<nhost>[\w.-]{1,64}):(?P<npid>\d{1,10}):\d{1,10} (?:\[(?P<gpu>\d{1,3})\] )?(?=NCCL |[\w/]{1,80}\.cc:\d)"
)
LOOSE = {
    "task": re.compile(r" {0,5}(?P<task>\d{1,6}): ?"),
    "node": re.compile(r"(?P<node>(?=[^:\s]{0,63}[\d.])[a-z][\w.-]{0,63}|\d{1,3}(?:\.\d{1,3}){3}): ?"),
    "container": re.compile(r"(?P<container>[\w.-]{1,64}) +\| ?"),
}
NOT_HOSTS = re.compile(r"(?:python|cuda|step|epoch|iter|gpu|line|bash|sh)[\d.:]*|[\w.-]*\.(?:py|sh|cc|cpp|h|[A-Z]\w*)")
INSIDE = re.compile(r"(?<=.)\[(?:rank|default)\d{1,6}\]:")
PROGRESS = re.compile(r"\d{1,3}%|\bit/s|\bs/it")
DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
LEAST_LINES = 3
SHARE = 0.55
RANK_GROUPS = ("rank", "mpi", "std", "own", "task")
HOST_GROUPS = ("pod", "ip", "nhost", "node", "container")


class LogPiece(msgspec.Struct, frozen=True):
    """A piece of a log line: ``text`` without its prefixes, ``token`` the prefix as written in the log."""

    text: str
    writer: Writer
    time_s: float | None = None
    token: str = ""
    pid: str = ""
    mapped: tuple[str, int] | None = None  # (host, local rank) on the same line as the global rank


class PrefixStyle(msgspec.Struct):
    """The ambiguous prefixes that a text uses."""

    loose: set[str] = msgspec.field(default_factory=set)

    def learn(self, lines: Iterable[str]) -> None:
        """Enable the ambiguous prefixes that most of ``lines`` have, each of them on several lines."""
        shown = [line for line in lines if line.strip()]
        if len(shown) < LEAST_LINES:
            return
        for name, pattern in LOOSE.items():
            if name in self.loose:
                continue
            seen = Counter(m[1] for line in shown if (m := pattern.match(line)) and not NOT_HOSTS.fullmatch(m[1]))
            if sum(seen.values()) >= SHARE * len(shown) and 2 * len(seen) <= sum(seen.values()):
                self.loose.add(name)


def split_line(raw: str, style: PrefixStyle, default: Writer) -> Iterator[LogPiece]:
    """Yield the pieces of a raw line, split where another rank writes into it, and the last state of a progress bar."""
    states = [raw]
    if "\r" in raw:
        states = [state for state in raw.split("\r") if state]
        states = [state for state in states[:-1] if not PROGRESS.search(state)] + states[-1:]
    for state in states:
        line = parse_prefix(state, style, default)
        while "]:" in line.text and (cut := INSIDE.search(line.text)):
            yield msgspec.structs.replace(line, text=line.text[: cut.start()])
            line = parse_prefix(line.text[cut.start() :], style, default)
        yield line


def parse_prefix(piece: str, style: PrefixStyle, default: Writer) -> LogPiece:
    """Parse the prefixes at the start of a piece of a line."""
    at, token, pid = 0, "", ""
    rank: int | None = None
    local: int | None = None
    host, time_s = "", None
    for _ in range(MOST_PREFIXES):
        found = _prefix(piece, at) or (_loose_prefix(piece, at, style) if style.loose else None)
        if found is None or found.end() == at:
            break
        kind = found.lastgroup or ""
        if host and kind in ("node", "container"):
            break  # a name behind that of the host: of an exception, a module
        at = found.end()
        if kind == "own" and rank is not None:
            continue  # the rank within a process group
        if kind in RANK_GROUPS:
            token = found[0] if rank is None else token
            rank = int(found[kind])
        elif kind == "local":
            local, token = int(found[kind]), token or found[0]
        elif kind.endswith("clock"):
            time_s = _seconds(found, kind) if time_s is None else time_s
        elif kind:
            given = found.groupdict()
            host = next((value for name in HOST_GROUPS if (value := given.get(name))), host)
            token, pid = token or found[0], given.get("pid") or given.get("npid") or pid
            if local is None and given.get("gpu"):
                local = int(given["gpu"])
    writer = default
    if rank is not None:
        writer = Writer(rank)
    elif default.local and default.rank is not None:
        writer = default  # the file belongs to one process
    elif local is not None:
        writer = Writer(local, host or default.host, local=True)
    elif host:
        writer = Writer(default.rank, host, default.local)
    mapped = (host or default.host, local) if rank is not None and local is not None else None
    return LogPiece(piece[at:], writer, time_s, token.rstrip(), pid, mapped)


def _prefix(piece: str, at: int) -> re.Match[str] | None:
    first = piece[at : at + 1]
    return (PREFIX.match(piece, at) if first in STARTS else None) or (
        NCCL.match(piece, at) if first.isalnum() else None
    )


def _loose_prefix(piece: str, at: int, style: PrefixStyle) -> re.Match[str] | None:
    for name in style.loose:
        found = LOOSE[name].match(piece, at)
        if found and not NOT_HOSTS.fullmatch(found[1]):
            return found
    return None


def _seconds(found: re.Match[str], kind: str) -> float | None:
    """Return the seconds since January 1 of a time stamp, or None for a clock time without a date."""
    prefix = kind.removesuffix("clock")
    month, day = int(found[f"{prefix}month"]), int(found[f"{prefix}day"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return (DAYS_BEFORE[month - 1] + day - 1) * 86400 + parse_clock(found[kind])


def parse_clock(text: str) -> float:
    """Convert a clock time such as ``12:34:56.789`` to seconds."""
    hours, minutes, seconds = text.replace(",", ".").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
