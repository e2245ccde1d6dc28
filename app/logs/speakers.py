"""Who speaks in a text, and from where to where: each rank's first and last line, found without reading every line.

At the start and the end of each block some lines are read. A rank that is no longer among those at the end is looked
for by its mark, and watched from then on, so that its last line is exact though most lines are never looked at.
"""

import re

import msgspec

from .lines import LogPiece, PrefixStyle, split_line
from .literal_search import LiteralScanner, TextBlock
from .types import EventKind, Speaker, TimelineEvent

SURVEY_BYTES = 16 << 10
WHOLE_BYTES = 256 << 10  # a text up to this size is read line by line
TIME_BACK_BYTES = 2000
TEXT_CHARACTERS = 200
LINE_BYTES = 1500  # of a long line, to either side of a place
MOST_VOICES = 4096
MOST_ASKED_FOR = 256  # silent voices looked for in one block
LEAST_TOKEN = 4
STAMP = re.compile(rb"(?:\d{4}[-/]\d\d[-/]\d\d[ T_]|[EWIFC]\d{3,4} )\d\d:\d\d:\d\d[^\n]{0,200}")
EPOCH = re.compile(r"\b[Ee]poch\b[\s:=\[/#]{1,3}(\d{1,9})")
STEP = re.compile(r"\b(?:[Ss]tep|STEP|[Ii]ter(?:ation)?|global_step)\b[\s:=\[/#]{1,3}(\d{1,12})")


class LogLine(msgspec.Struct, frozen=True):
    """A line of a voice: only what is needed to tell of it later."""

    time_s: float | None
    line: int
    offset: int
    text: str
    stamped: bool = False  # the time stands on the line itself


class SpeakerState(msgspec.Struct):
    """What is known of one voice in one text; ``active``: heard at the end of the last block."""

    first: LogLine
    last: LogLine
    token: bytes = b""
    active: bool = True


class StepRange(msgspec.Struct):
    """The first and the last training step seen since the last restart."""

    first: TimelineEvent | None = None
    last: TimelineEvent | None = None


class SpeakerTracker:
    """Gathers the voices of one text, block by block."""

    def __init__(self, origin: str, default: Speaker, size_bytes: int) -> None:
        self.origin, self.default, self.size_bytes = origin, default, size_bytes
        self.style = PrefixStyle()
        self.spoken: dict[tuple[int, Speaker], SpeakerState] = {}
        self.mapped: dict[tuple[str, int], int] = {}
        self.steps: dict[int, StepRange] = {}
        self.last_steps: dict[tuple[int, Speaker], TimelineEvent] = {}
        self._last_time_s: float | None = None
        self._watched: dict[bytes, tuple[int, Speaker]] = {}
        self._new: set[bytes] = set()  # watched, but not yet in the block that is being looked at

    def learn(self, block: TextBlock) -> None:
        """Find out which loose marks the lines around the block have."""
        head = block.data[block.begin : min(block.end, block.begin + SURVEY_BYTES)]
        tail = block.data[max(block.begin, block.end - SURVEY_BYTES) : block.end]
        for part in (head, tail):
            self.style.learn(part.decode("utf-8", errors="replace").split("\n"))

    def survey(
        self,
        block: TextBlock,
        found: dict[bytes, list[int]],
        attempt_at: list[tuple[int, int]],
        scanner: LiteralScanner,
    ) -> None:
        """Take note of the lines at the end of the block (of the first one also at its start), and of silent voices.

        ``found`` are the places of all literals in the block, ``attempt_at`` the offsets in its data from which on
        another attempt counts.
        """
        if block.end - block.begin <= WHOLE_BYTES:
            self._read(block, block.begin, block.end, attempt_at)
            return
        if block.offset == 0:
            self._read(block, block.begin, block.begin + SURVEY_BYTES, attempt_at)
        self._hear_watched(block, found, scanner)
        before = set(self.spoken)
        heard = self._read(block, max(block.begin, block.end - SURVEY_BYTES), block.end, attempt_at)
        for key in set(self.spoken) - before:
            at = block.data.find(self.spoken[key].token, block.begin, block.end) if self.spoken[key].token else -1
            if at >= 0:
                self.saw(block, at, key[0])
        for attempt, voice in self._to_ask_for(heard, attempt_at[-1][1], block):
            spoken = self.spoken[attempt, voice]
            at = block.data.rfind(spoken.token, block.begin, block.end)
            if at >= 0:
                self.saw(block, at, attempt)
            else:
                spoken.active = False
                self._watched[spoken.token] = (attempt, voice)
                self._new.add(spoken.token)
                scanner.watch(spoken.token)

    def _to_ask_for(self, heard: set[Speaker], attempt: int, block: TextBlock) -> list[tuple[int, Speaker]]:
        """Who spoke lately but not at the end of the block; of very many, others each time."""
        missing = [
            key
            for key, spoken in self.spoken.items()
            if key[0] == attempt and spoken.active and spoken.token and key[1] not in heard
        ]
        if len(missing) <= MOST_ASKED_FOR:
            return missing
        start = block.line % len(missing)
        return (missing[start:] + missing[:start])[:MOST_ASKED_FOR]

    def end(self, scanner: LiteralScanner) -> None:
        """The text is at its end: nobody is watched any more."""
        for token in self._watched:
            scanner.forget(token)

    def _hear_watched(self, block: TextBlock, found: dict[bytes, list[int]], scanner: LiteralScanner) -> None:
        for token, (attempt, _) in list(self._watched.items()):
            places = found.get(token, [])
            if not places and token in self._new:  # this block was looked at before the token was watched
                places = [at for at in (block.data.rfind(token, block.begin, block.end),) if at >= 0]
            self._new.discard(token)
            if places:
                del self._watched[token]
                scanner.forget(token)
                self.saw(block, places[-1], attempt)

    def saw(self, block: TextBlock, at: int, attempt: int) -> Speaker:
        """Take note of the line at an offset of the block's data, found by other means."""
        begin, text = line_at(block.data, at)
        line = next(split_line(text, self.style, self.default))
        if line.time_s is None:
            line = msgspec.structs.replace(line, time_s=time_before(block.data, at, self.style))
        self._note(line, block, begin, attempt, block.number(begin))
        return line.voice

    def place(self, offset: int) -> float:
        """How far into the text an offset stands; of a text of unknown size its order only."""
        return offset / max(self.size_bytes, offset, 1) if self.size_bytes else 1.0 - 1.0 / (1.0 + offset / 1e9)

    def event(self, kind: EventKind, seen: LogLine, id_: str) -> TimelineEvent:
        """An event for a line."""
        where = f"{self.origin}:{seen.line}"
        text = seen.text.strip()[:TEXT_CHARACTERS]
        return TimelineEvent(kind, seen.time_s, seen.line, where, text, id_, self.place(seen.offset))

    def ends(self) -> dict[tuple[int, Speaker], tuple[TimelineEvent, TimelineEvent]]:
        """Each voice's first and last line, by attempt."""
        return {
            key: (self.event("note", spoken.first, "line"), self.event("note", spoken.last, "line"))
            for key, spoken in self.spoken.items()
        }

    def stamped(self) -> set[tuple[int, Speaker]]:
        """The voices, by attempt, whose last line has a time of its own."""
        return {key for key, spoken in self.spoken.items() if spoken.last.stamped}

    def _read(self, block: TextBlock, start: int, end: int, attempt_at: list[tuple[int, int]]) -> set[Speaker]:
        """Read whole lines between two offsets of the block's data."""
        data = block.data
        if start > block.begin:
            start = data.find(b"\n", start, end) + 1 or end
        number = block.number(start)
        heard: set[Speaker] = set()
        coming = [item for item in attempt_at if item[0] > start]
        attempt = [number_ for offset, number_ in attempt_at if offset <= start][-1]
        at = start
        for raw in data[start:end].split(b"\n"):
            while coming and coming[0][0] <= at:
                attempt = coming.pop(0)[1]
            if raw.strip():
                for line in split_line(raw[:4000].decode("utf-8", errors="replace"), self.style, self.default):
                    heard.add(self._note(line, block, at, attempt, number))
            at += len(raw) + 1
            number += 1
        return heard

    def _note(self, line: LogPiece, block: TextBlock, at: int, attempt: int, number: int) -> Speaker:
        if line.time_s is not None:
            self._last_time_s = line.time_s
        if line.mapped:
            self.mapped[line.mapped] = line.voice.rank or 0
        seen = LogLine(self._last_time_s, number, block.offset + at, line.text, line.time_s is not None)
        if "tep" in line.text or "poch" in line.text or "ter" in line.text or "STEP" in line.text:
            self._step(seen, attempt, line.voice)
        key = (attempt, line.voice)
        spoken = self.spoken.get(key)
        if spoken is None:
            if len(self.spoken) < MOST_VOICES:
                self.spoken[key] = SpeakerState(seen, seen, _token(line))
        elif seen.offset >= spoken.last.offset:
            spoken.last, spoken.active = seen, True
        elif seen.offset < spoken.first.offset:
            spoken.first = seen
        return line.voice

    def _step(self, seen: LogLine, attempt: int, voice: Speaker) -> None:
        step, epoch = STEP.search(seen.text), EPOCH.search(seen.text)
        if not step and not epoch:
            return
        values = {"step": step[1]} if step else {}
        values |= {"epoch": epoch[1]} if epoch else {}
        shown = msgspec.structs.replace(self.event("step", seen, "mark:step"), values=values)
        steps = self.steps.setdefault(attempt, StepRange())
        steps.first = steps.first or shown
        steps.last = shown
        if (attempt, voice) in self.last_steps or len(self.last_steps) < MOST_VOICES:
            self.last_steps[attempt, voice] = shown


def _token(line: LogPiece) -> bytes:
    token = line.token.encode()
    return token if len(token) >= LEAST_TOKEN else b"\n" + token + b" " if token else b""


def line_start(data: bytes, at: int, most: int) -> int:
    """Where the line around an offset begins; of a very long line ``most`` bytes before the offset."""
    floor = max(0, at - most)
    return data.rfind(b"\n", floor, at) + 1 or floor


def line_at(data: bytes, at: int, most: int = LINE_BYTES) -> tuple[int, str]:
    """Where the line around an offset begins, and its text (of a very long line the part around the offset)."""
    begin = line_start(data, at, most)
    end = data.find(b"\n", at, at + most)
    return begin, data[begin : end if end >= 0 else at + most].decode("utf-8", errors="replace")


def time_before(data: bytes, at: int, style: PrefixStyle) -> float | None:
    """The last time that stands on the line at ``at`` or shortly before it."""
    stamps = list(STAMP.finditer(data, max(0, at - TIME_BACK_BYTES), min(len(data), at + 80)))
    if not stamps:
        return None
    return next(split_line(stamps[-1][0].decode("utf-8", errors="replace"), style, Speaker())).time_s
