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
from .evidence import Status
from .system import paths
from .text import redact

Kind = Literal[
    "opened",  # {argv, version, cwd}
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


class SessionEvent(msgspec.Struct, frozen=True):
    """One line of a session: its time, kind and plain data."""

    at: float
    kind: Kind
    data: dict[str, Any]


class Session:
    """The log that is being written. ``events`` equals the content of the file."""

    def __init__(self, path: Path, events: list[SessionEvent]) -> None:
        self.path = path
        self.events = events

    @property
    def id(self) -> str:
        return self.path.stem

    @classmethod
    def new(cls, **opened: Any) -> "Session":
        """Start a session in the state directory; its id is the time, to 1/65536 s, so that ids sort by time."""
        now = time.time()
        id_ = time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + f"-{int(now % 1 * 0x10000):04x}"
        session = cls(paths.sessions_dir() / f"{id_}.jsonl", [])
        session.append("opened", **opened)
        return session

    @classmethod
    def load(cls, id_: str) -> "Session":
        """Read the session with this id, or the only one whose id begins so; ``last`` is the newest.

        A torn last line (the power went) is left out.

        Raises:
            UserError: There is no such session, or more than one begins with ``id_``.
        """
        path = _find(id_)
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
        return cls(path, list(_decoded(path, content)))

    def append(self, kind: Kind, /, **data: Any) -> SessionEvent:
        """Write one event to the end of the file before returning.

        Raises:
            UserError: The state directory cannot be written.
        """
        return self.append_all(kind, [data])[0]

    def append_all(self, kind: Kind, rows: Sequence[Mapping[str, Any]]) -> list[SessionEvent]:
        """Append several events of one kind in one write.

        Raises:
            UserError: The state directory cannot be written.
        """
        events = [SessionEvent(time.time(), kind, redact.redact_record(msgspec.to_builtins(row))) for row in rows]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(fd, b"".join(msgspec.json.encode(event) + b"\n" for event in events))
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise UserError(
                f"cannot write the session file {self.path}: {error.strerror}",
                "set XDG_STATE_HOME to a directory you can write",
            ) from error
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


def all_sessions() -> Iterator[Session]:
    """Yield every session, newest first, each read on demand; unreadable files are left out."""
    for path in sorted(paths.sessions_dir().glob("*.jsonl"), reverse=True):
        try:
            yield Session(path, list(_decoded(path, path.read_bytes())))
        except (OSError, UserError):
            continue


def _find(id_: str) -> Path:
    files = sorted(paths.sessions_dir().glob("*.jsonl"))
    matching = (
        files[-1:]
        if id_ == "last"
        else [p for p in files if p.stem == id_] or [p for p in files if p.stem.startswith(id_)]
    )
    if len(matching) == 1:
        return matching[0]
    what = f"no session {id_!r}" if not matching else f"{len(matching)} sessions begin with {id_!r}"
    raise UserError(what, "ddpwizard sessions list shows them")


def _decoded(path: Path, content: bytes) -> Iterator[SessionEvent]:
    decoder = msgspec.json.Decoder(SessionEvent)
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError as error:
            if number == len(lines):
                return
            raise UserError(
                f"{path}:{number}: not a session event ({error})", "leave this session, start a new one"
            ) from error
