"""A session: an append-only log of events in one JSONL file, which resume, report and replay read.

Each event is written and flushed to the disk at once, so that a lost connection costs nothing. Secrets are removed
before writing.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from .errors import UserError
from .evidence import Evidence, Status
from .snapshot import Snapshot
from .system import paths
from .system.files import read_regular_file
from .text import redact
from .text.units import count_text

Kind = Literal[
    "opened",  # {argv, version, cwd, command: what ddpwizard run started}
    "step",  # {screen, detail}: the current screen, to return to
    "answer",  # {question, answer}
    "evidence",  # an Evidence
    "snapshot",  # a Snapshot
    "triage",  # a triage document
    "diagnosis",  # {causes: [[id, confidence]], other}
    "fix",  # {id, cause, action: written|applied|undone, paths, backup}
    "proof",  # {passed, outcome, what, detail, before, after, diff}
    "note",  # {text}
    "text",  # {origin, words, errors: [[where, line]]}: the input
    "timeline",  # a Timeline of the given logs
    "truth",  # {cause, was}: the user confirms or rejects a cause
    "closed",  # {}
]

# The result of a proof. "proved": it was wrong here, a fix was applied, it is right now. "not shown here": the check
# was fine before, or could not be made, and proves nothing. "still there": the failure was seen again.
Outcome = Literal["proved", "not shown here", "still there"]
OUTCOME_STATUS: dict[Outcome, Status] = {"proved": "ok", "not shown here": "skip", "still there": "fail"}

LIMIT_BYTES = 256_000_000
LATEST_S = 1e11  # a time that strftime accepts
SHOWN_LINES = 5
NEW_SESSION = "leave this session, start a new one"


class SessionEvent(msgspec.Struct, frozen=True):
    """One line of a session: its time, kind and plain data."""

    at: float
    kind: Kind
    data: dict[str, Any]


class _Answer(msgspec.Struct):
    question: str
    answer: str | None


class _Truth(msgspec.Struct):
    cause: str
    was: bool


class _Text(msgspec.Struct):
    words: str
    errors: list[tuple[str, str]]


class _Job(msgspec.Struct):
    verdict: dict[str, Any] = {}


class _Triage(msgspec.Struct):
    jobs: list[_Job] = []
    observed: list[dict[str, Any]] = []


class _Diagnosis(msgspec.Struct):
    causes: list[tuple[str, float]] = []


class _Fix(msgspec.Struct):
    id: str


class _Proof(msgspec.Struct):
    outcome: str | None = None


CONTENT: dict[str, type] = {
    "snapshot": Snapshot,
    "answer": _Answer,
    "truth": _Truth,
    "text": _Text,
    "evidence": Evidence,
    "triage": _Triage,
    "diagnosis": _Diagnosis,
    "fix": _Fix,
    "proof": _Proof,
}


class Session:
    """The log that is being written. ``events`` equals the content of the file, except for its damaged lines.

    With ``goes_on`` an event that cannot be written is kept in memory, and ``problem`` has the reason.
    """

    def __init__(self, path: Path, events: list[SessionEvent], damaged: Sequence[int] = ()) -> None:
        self.path = path
        self.events = events
        self.damaged = damaged  # numbers of the lines that were left out
        self.goes_on = False
        self.problem = ""

    @property
    def id(self) -> str:
        return self.path.stem

    @property
    def damage(self) -> str:
        """The lines that were left out, as one line of text; empty if there are none."""
        if not self.damaged:
            return ""
        numbers = ", ".join(map(str, self.damaged[:SHOWN_LINES])) + (", …" if len(self.damaged) > SHOWN_LINES else "")
        return f"session {self.id}: {count_text(len(self.damaged), 'damaged line')} left out (line {numbers})"

    @classmethod
    def new(cls, *, goes_on: bool = False, **opened: Any) -> "Session":
        """Start a session in the state directory; its id is the time, to 1/65536 s, so that ids sort by time."""
        now = time.time()
        id_ = time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + f"-{int(now % 1 * 0x10000):04x}"
        session = cls(paths.sessions_dir() / f"{id_}.jsonl", [])
        session.goes_on = goes_on
        session.append("opened", **opened)
        return session

    @classmethod
    def load(cls, id_: str) -> "Session":
        """Read the session with this id, or the only one whose id begins so; ``last`` is the newest.

        Damaged lines are left out; ``damage`` reports them.

        Raises:
            UserError: There is no such session, more than one begins with ``id_``, or it has no readable event.
        """
        return _read(_find(id_))

    def append(self, kind: Kind, /, **data: Any) -> SessionEvent:
        """Write one event to the end of the file before returning.

        Raises:
            UserError: The state directory cannot be written.
        """
        return self.append_all(kind, [data])[0]

    def append_all(self, kind: Kind, rows: Sequence[Mapping[str, Any]]) -> list[SessionEvent]:
        """Append several events of one kind in one write.

        Raises:
            UserError: The state directory cannot be written, and the session does not go on without.
        """
        events = [SessionEvent(time.time(), kind, redact.redact_record(msgspec.to_builtins(row))) for row in rows]
        try:
            _append(self.path, b"".join(msgspec.json.encode(event) + b"\n" for event in events))
        except OSError as error:
            problem = f"cannot write the session file {self.path}: {error.strerror}"
            if not self.goes_on:
                raise UserError(problem, "set XDG_STATE_HOME to a directory you can write") from error
            self.problem = f"this case is not saved: {problem}"
        self.events += events
        return events

    def last(self, kind: Kind) -> SessionEvent | None:
        """Return the newest event of a kind, or None."""
        return next((event for event in reversed(self.events) if event.kind == kind), None)


def proof_outcome(event: SessionEvent) -> Outcome:
    """Return the outcome of a proof.

    Sessions of earlier versions do not record the state before the fix: what passed there is not shown to be proved.
    """
    for outcome in OUTCOME_STATUS:
        if outcome == event.data.get("outcome"):
            return outcome
    return "not shown here" if event.data.get("passed") else "still there"


def all_sessions(prefix: str = "") -> Iterator[Session]:
    """Yield every session whose id begins so, newest first, each read on demand.

    Files without a readable event are left out.
    """
    for path in sorted(paths.sessions_dir().glob("*.jsonl"), reverse=True):
        if not path.stem.startswith(prefix):
            continue
        try:
            session = _read(path)
        except UserError:
            continue
        yield session


def _find(id_: str) -> Path:
    if id_ == "last" and (newest := next(all_sessions(), None)):
        return newest.path
    files = sorted(paths.sessions_dir().glob("*.jsonl"))
    matching = [p for p in files if p.stem == id_] or [p for p in files if p.stem.startswith(id_)]
    if len(matching) == 1:
        return matching[0]
    what = f"no session {id_!r}" if not matching else f"{len(matching)} sessions begin with {id_!r}"
    raise UserError(what, "ddpwizard sessions list shows them")


def _read(path: Path) -> Session:
    """Read a session; lines that are no event are left out and their numbers kept.

    Raises:
        UserError: The file cannot be read, or has no event.
    """
    decoder = msgspec.json.Decoder(SessionEvent)
    events: list[SessionEvent] = []
    damaged: list[int] = []
    for number, line in enumerate(read_regular_file(path, LIMIT_BYTES, NEW_SESSION).split(b"\n"), 1):
        try:
            event = decoder.decode(line) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            event = None
        if event and _is_complete(event):
            events.append(event)
        elif line.strip():
            damaged.append(number)
    if not events:
        raise UserError(f"{path} has no session event", NEW_SESSION)
    return Session(path, events, damaged)


def _is_complete(event: SessionEvent) -> bool:
    """Return whether an event has the time and the data that its readers rely on."""
    if not 0 <= event.at < LATEST_S:
        return False
    try:
        msgspec.convert(event.data, CONTENT.get(event.kind, dict), str_keys=True)
    except msgspec.ValidationError:
        return False
    return True


def _append(path: Path, content: bytes) -> None:
    """Write to the end of a file, wholly or not at all.

    Raises:
        OSError: The file cannot be written; it is as before.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        before_bytes = os.fstat(fd).st_size
        if before_bytes and os.pread(fd, 1, before_bytes - 1) != b"\n":
            content = b"\n" + content  # after a line that was cut off
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        except OSError:
            os.ftruncate(fd, before_bytes)
            if not before_bytes:
                path.unlink()
            raise
    finally:
        os.close(fd)
