"""The types of log analysis: writers, events, tracebacks, and the timeline of the ranks."""

from typing import Literal

import msgspec

from ..evidence import Evidence

LOCATION_MARK = "   at "  # in the text of an exception, before its location

EventKind = Literal["error", "consequence", "summary", "exit", "step", "restart", "note"]


class Writer(msgspec.Struct, frozen=True):
    """The writer of a line. ``rank`` may be a local rank (``local``); without rank and host the writer is unknown."""

    rank: int | None = None
    host: str = ""
    local: bool = False

    @property
    def known(self) -> bool:
        """True if it can be distinguished from other writers."""
        return self.rank is not None or bool(self.host)


UNKNOWN_WRITER = Writer()


class TimelineEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event in a log. ``place`` is its relative position in the text (0..1), ``time_s`` seconds since January 1.

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
    """One rank's part of one attempt: its first and last line, and the events between them in order."""

    rank: int | None
    host: str
    first: TimelineEvent
    last: TimelineEvent
    events: list[TimelineEvent] = []

    @property
    def name(self) -> str:
        """The readable name: rank 3, rank 3 on node-1, node-1."""
        if self.rank is None:
            return self.host or "the log"
        return f"rank {self.rank}" + (f" on {self.host}" if self.host else "")


class Attempt(msgspec.Struct, frozen=True):
    """One start of the job. ``shared``: events on lines without a known writer, mostly of the launcher."""

    number: int
    tracks: list[Track]
    shared: list[TimelineEvent] = []


class Timeline(msgspec.Struct, frozen=True):
    """The ranks' tracks by attempt. ``culprit``: the first rank with a failure that is not a consequence of another.

    ``ordered``: True if events of different tracks can be ordered (one text, or time stamps everywhere).
    """

    attempts: list[Attempt]
    culprit: int | None = None
    culprit_host: str = ""
    culprit_where: str = ""
    culprit_why: str = ""
    ordered: bool = True

    @property
    def several(self) -> bool:
        """True if there are several ranks or hosts to compare."""
        return any(len(attempt.tracks) > 1 for attempt in self.attempts)


class LogAnalysis(msgspec.Struct, frozen=True):
    """The result of analysing logs. ``prose``: the short texts that a person may have written, ``errors``: the (where,
    exception) of each traceback. ``of_other_programs``: programs that train nothing have written all of it.
    """

    evidence: list[Evidence]
    timeline: Timeline | None
    prose: list[tuple[str, str]]
    in_scope: bool
    errors: list[tuple[str, str]]
    of_other_programs: bool = False


RaisedIn = Literal["script", "library", "check"]  # check: of a library for distributed training, by raise or assert


class TracebackFrame(msgspec.Struct, frozen=True):
    """One frame of a traceback's stack."""

    file: str
    line: int
    function: str
    code: str = ""  # the line of the source as it was then


class Traceback(msgspec.Struct, frozen=True):
    """A Python traceback: the first exception of its chain, and the innermost frame of the user's code."""

    exception: str
    message: str
    frame: TracebackFrame | None
    writer: Writer
    first_line: int
    message_line: int  # line on which the message begins
    last_line: int
    time_s: float | None = None
    outer: str = ""  # the last exception of the chain, if it is another one
    collective: str = ""  # the torch.distributed function in which it was raised
    raised_in: RaisedIn = "library"  # the code of its innermost frame
    in_script: bool = False  # it has a frame in the user's code
    main: str = ""  # the file of the user's code that was started

    @property
    def location(self) -> str:
        """The location as ``file:line in function``, or ""."""
        return f"{self.frame.file}:{self.frame.line} in {self.frame.function}" if self.frame else ""
