"""Find the first and last line of each rank in a text without reading every line.

Some lines at the start and the end of each block are read. A rank that no longer writes at the end of a block is
searched by its prefix and watched from then on, so its last line is exact although most lines are never read.
"""

import re

import msgspec

from .lines import LogPiece, PrefixStyle, split_line
from .literal_search import LiteralScanner, TextBlock
from .types import EventKind, TimelineEvent, Writer

END_BYTES = 16 << 10
WHOLE_BYTES = 256 << 10  # a text up to this size is read line by line
TIME_BACK_BYTES = 2000
TEXT_CHARACTERS = 200
LINE_BYTES = 1500  # of a long line, on either side of an offset
MOST_WRITERS = 4096
MOST_SEARCHED = 256  # silent writers searched in one block
LEAST_TOKEN = 4
STAMP = re.compile(rb"(?:\d{4}[-/]\d\d[-/]\d\d[ T_]|[EWIFC]\d{3,4} )\d\d:\d\d:\d\d[^\n]{0,200}")
EPOCH = re.compile(r"\b[Ee]poch\b[\s:=\[/#]{1,3}(\d{1,9})")
STEP = re.compile(r"\b(?:[Ss]tep|STEP|[Ii]ter(?:ation)?|global_step)\b[\s:=\[/#]{1,3}(\d{1,12})")


class LogLine(msgspec.Struct, frozen=True):
    """A line of a writer, reduced to the fields that its events need."""

    time_s: float | None
    line: int
    offset: int
    text: str
    stamped: bool = False  # the line has a time stamp of its own


class WriterState(msgspec.Struct):
    """The first and last line of one writer in one text. ``active``: it wrote at the end of the last block."""

    first: LogLine
    last: LogLine
    token: bytes = b""
    active: bool = True


class StepRange(msgspec.Struct):
    """The first and the last training step seen since the last restart."""

    first: TimelineEvent | None = None
    last: TimelineEvent | None = None


class WriterTracker:
    """Collects the writers of one text, block by block."""

    def __init__(self, origin: str, default: Writer, size_bytes: int) -> None:
        self.origin, self.default, self.size_bytes = origin, default, size_bytes
        self.style = PrefixStyle()
        self.states: dict[tuple[int, Writer], WriterState] = {}
        self.mapped: dict[tuple[str, int], int] = {}
        self.steps: dict[int, StepRange] = {}
        self.last_steps: dict[tuple[int, Writer], TimelineEvent] = {}
        self._last_time_s: float | None = None
        self._watched: dict[bytes, tuple[int, Writer]] = {}
        self._new: set[bytes] = set()  # watched since the current block was scanned

    def learn(self, block: TextBlock) -> None:
        """Detect which ambiguous prefixes the lines at both ends of the block have."""
        head = block.data[block.begin : min(block.end, block.begin + END_BYTES)]
        tail = block.data[max(block.begin, block.end - END_BYTES) : block.end]
        for part in (head, tail):
            self.style.learn(part.decode("utf-8", errors="replace").split("\n"))

    def record_ends(
        self,
        block: TextBlock,
        found: dict[bytes, list[int]],
        attempt_at: list[tuple[int, int]],
        scanner: LiteralScanner,
    ) -> None:
        """Record the lines at the end of the block (and at the start of the first one); search for silent writers.

        ``found``: offsets of all literals in the block; ``attempt_at``: (offset in its data, attempt from there on).
        """
        if block.end - block.begin <= WHOLE_BYTES:
            self._read(block, block.begin, block.end, attempt_at)
            return
        if block.offset == 0:
            self._read(block, block.begin, block.begin + END_BYTES, attempt_at)
        self._note_watched(block, found, scanner)
        before = set(self.states)
        present = self._read(block, max(block.begin, block.end - END_BYTES), block.end, attempt_at)
        for key in set(self.states) - before:
            at = block.data.find(self.states[key].token, block.begin, block.end) if self.states[key].token else -1
            if at >= 0:
                self.add_line(block, at, key[0])
        for attempt, writer in self._silent_writers(present, attempt_at[-1][1], block):
            state = self.states[attempt, writer]
            at = block.data.rfind(state.token, block.begin, block.end)
            if at >= 0:
                self.add_line(block, at, attempt)
            else:
                state.active = False
                self._watched[state.token] = (attempt, writer)
                self._new.add(state.token)
                scanner.watch(state.token)

    def _silent_writers(self, present: set[Writer], attempt: int, block: TextBlock) -> list[tuple[int, Writer]]:
        """Return the writers that are missing at the end of the block; if very many, another part each time."""
        missing = [
            key
            for key, state in self.states.items()
            if key[0] == attempt and state.active and state.token and key[1] not in present
        ]
        if len(missing) <= MOST_SEARCHED:
            return missing
        start = block.line % len(missing)
        return (missing[start:] + missing[:start])[:MOST_SEARCHED]

    def end(self, scanner: LiteralScanner) -> None:
        """Stop watching all writers at the end of the text."""
        for token in self._watched:
            scanner.forget(token)

    def _note_watched(self, block: TextBlock, found: dict[bytes, list[int]], scanner: LiteralScanner) -> None:
        for token, (attempt, _) in list(self._watched.items()):
            places = found.get(token, [])
            if not places and token in self._new:  # the block was scanned before the token was watched
                places = [at for at in (block.data.rfind(token, block.begin, block.end),) if at >= 0]
            self._new.discard(token)
            if places:
                del self._watched[token]
                scanner.forget(token)
                self.add_line(block, places[-1], attempt)

    def add_line(self, block: TextBlock, at: int, attempt: int) -> Writer:
        """Record the line at an offset of the block's data and return its writer."""
        begin, text = line_at(block.data, at)
        line = next(split_line(text, self.style, self.default))
        if line.time_s is None:
            line = msgspec.structs.replace(line, time_s=time_before(block.data, at, self.style))
        self._note(line, block, begin, attempt, block.number(begin))
        return line.writer

    def place(self, offset: int) -> float:
        """Return the relative position of an offset in the text; for a text of unknown size only the order is right."""
        return offset / max(self.size_bytes, offset, 1) if self.size_bytes else 1.0 - 1.0 / (1.0 + offset / 1e9)

    def event(self, kind: EventKind, seen: LogLine, id_: str) -> TimelineEvent:
        """Build an event of a line."""
        where = f"{self.origin}:{seen.line}"
        text = seen.text.strip()[:TEXT_CHARACTERS]
        return TimelineEvent(kind, seen.time_s, seen.line, where, text, id_, self.place(seen.offset))

    def first_and_last(self) -> dict[tuple[int, Writer], tuple[TimelineEvent, TimelineEvent]]:
        """Return the first and last line of each writer, by attempt."""
        return {
            key: (self.event("note", state.first, "line"), self.event("note", state.last, "line"))
            for key, state in self.states.items()
        }

    def stamped(self) -> set[tuple[int, Writer]]:
        """Return the writers, by attempt, whose last line has a time stamp."""
        return {key for key, state in self.states.items() if state.last.stamped}

    def _read(self, block: TextBlock, start: int, end: int, attempt_at: list[tuple[int, int]]) -> set[Writer]:
        """Read whole lines between two offsets of the block's data."""
        data = block.data
        if start > block.begin:
            start = data.find(b"\n", start, end) + 1 or end
        number = block.number(start)
        present: set[Writer] = set()
        coming = [item for item in attempt_at if item[0] > start]
        attempt = [number_ for offset, number_ in attempt_at if offset <= start][-1]
        at = start
        for raw in data[start:end].split(b"\n"):
            while coming and coming[0][0] <= at:
                attempt = coming.pop(0)[1]
            if raw.strip():
                for line in split_line(raw[:4000].decode("utf-8", errors="replace"), self.style, self.default):
                    present.add(self._note(line, block, at, attempt, number))
            at += len(raw) + 1
            number += 1
        return present

    def _note(self, line: LogPiece, block: TextBlock, at: int, attempt: int, number: int) -> Writer:
        if line.time_s is not None:
            self._last_time_s = line.time_s
        if line.mapped:
            self.mapped[line.mapped] = line.writer.rank or 0
        seen = LogLine(self._last_time_s, number, block.offset + at, line.text, line.time_s is not None)
        if "tep" in line.text or "poch" in line.text or "ter" in line.text or "STEP" in line.text:
            self._step(seen, attempt, line.writer)
        key = (attempt, line.writer)
        state = self.states.get(key)
        if state is None:
            if len(self.states) < MOST_WRITERS:
                self.states[key] = WriterState(seen, seen, _token(line))
        elif seen.offset >= state.last.offset:
            state.last, state.active = seen, True
        elif seen.offset < state.first.offset:
            state.first = seen
        return line.writer

    def _step(self, seen: LogLine, attempt: int, writer: Writer) -> None:
        step, epoch = STEP.search(seen.text), EPOCH.search(seen.text)
        if not step and not epoch:
            return
        values = {"step": step[1]} if step else {}
        values |= {"epoch": epoch[1]} if epoch else {}
        shown = msgspec.structs.replace(self.event("step", seen, "mark:step"), values=values)
        steps = self.steps.setdefault(attempt, StepRange())
        steps.first = steps.first or shown
        steps.last = shown
        if (attempt, writer) in self.last_steps or len(self.last_steps) < MOST_WRITERS:
            self.last_steps[attempt, writer] = shown


def _token(line: LogPiece) -> bytes:
    token = line.token.encode()
    return token if len(token) >= LEAST_TOKEN else b"\n" + token + b" " if token else b""


def line_start(data: bytes, at: int, most: int) -> int:
    """Return the start of the line at an offset, at most ``most`` bytes before it."""
    floor = max(0, at - most)
    return data.rfind(b"\n", floor, at) + 1 or floor


def line_at(data: bytes, at: int, most: int = LINE_BYTES) -> tuple[int, str]:
    """Return the start and the text of the line at an offset; of a very long line only the part around the offset."""
    begin = line_start(data, at, most)
    end = data.find(b"\n", at, at + most)
    return begin, data[begin : end if end >= 0 else at + most].decode("utf-8", errors="replace")


def time_before(data: bytes, at: int, style: PrefixStyle) -> float | None:
    """Return the last time stamp on the line at ``at`` or shortly before it, or None."""
    stamps = list(STAMP.finditer(data, max(0, at - TIME_BACK_BYTES), min(len(data), at + 80)))
    if not stamps:
        return None
    return next(split_line(stamps[-1][0].decode("utf-8", errors="replace"), style, Writer())).time_s
