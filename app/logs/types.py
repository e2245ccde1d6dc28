"""What is known about a log, as plain data: who speaks in it, what was found where, and the timeline of the ranks."""

from typing import Literal

import msgspec

from ..evidence import Evidence

EventKind = Literal["error", "consequence", "summary", "exit", "step", "restart", "note"]


class Speaker(msgspec.Struct, frozen=True):
    """Who wrote a line. ``rank`` may be a local one (``local``); without rank and host it is anybody."""

    rank: int | None = None
    host: str = ""
    local: bool = False

    @property
    def known(self) -> bool:
        """Whether this is one of several that can be told apart."""
        return self.rank is not None or bool(self.host)


UNKNOWN_SPEAKER = Speaker()


class TimelineEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something a rank showed. ``place`` is how far into the text it stands (0..1), ``time_s`` seconds since January 1.

    ``id`` is the id of the evidence, of a mark (``mark:oom``) or of an exception (``exception:ValueError``).
    """

    kind: EventKind
    time_s: float | None
    line: int
    where: str
    text: str
    id: str
    place: float = 0.0
    count: int = 1
    values: dict[str, str] = {}


class Track(msgspec.Struct, frozen=True):
    """One rank's part of one attempt: its first and last line and what stands between them, in order."""

    rank: int | None
    host: str
    first: TimelineEvent
    last: TimelineEvent
    events: list[TimelineEvent] = []

    @property
    def name(self) -> str:
        """How people call it: rank 3, rank 3 on node-1, node-1."""
        if self.rank is None:
            return self.host or "the log"
        return f"rank {self.rank}" + (f" on {self.host}" if self.host else "")


class Attempt(msgspec.Struct, frozen=True):
    """One start of the job. ``shared`` are the lines nobody's mark stands on: the launcher's, mostly."""

    number: int
    tracks: list[Track]
    shared: list[TimelineEvent] = []


class Timeline(msgspec.Struct, frozen=True):
    """The ranks' tracks by attempt. ``culprit`` is the rank that first showed something that is no consequence.

    ``ordered``: whether events of different tracks can be put in order (one text, or times everywhere).
    """

    attempts: list[Attempt]
    culprit: int | None = None
    culprit_host: str = ""
    culprit_where: str = ""
    culprit_why: str = ""
    ordered: bool = True

    @property
    def several(self) -> bool:
        """Whether there is more than one rank or host to look at beside each other."""
        return any(len(attempt.tracks) > 1 for attempt in self.attempts)


class LogAnalysis(msgspec.Struct, frozen=True):
    """All that the logs say. ``prose`` are the short texts that may be a person's words, ``errors`` the (where,
    exception) of each traceback."""

    evidence: list[Evidence]
    timeline: Timeline | None
    prose: list[tuple[str, str]]
    in_scope: bool
    errors: list[tuple[str, str]]


class TracebackFrame(msgspec.Struct, frozen=True):
    """One line of a traceback's stack."""

    file: str
    line: int
    function: str


class Traceback(msgspec.Struct, frozen=True):
    """A Python traceback: the exception that came first in its chain, and the innermost frame of the user's code."""

    exception: str
    message: str
    frame: TracebackFrame | None
    voice: Speaker
    first_line: int
    said_line: int  # where the message begins
    last_line: int
    time_s: float | None = None
    outer: str = ""  # the exception that was shown last, where it is another one
    collective: str = ""  # the function of torch.distributed it was in

    @property
    def location(self) -> str:
        """``file:line in function``, or nothing."""
        return f"{self.frame.file}:{self.frame.line} in {self.frame.function}" if self.frame else ""
