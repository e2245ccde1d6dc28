"""Ask the regular expressions about the places where a literal stands, and keep what was found, by rank and attempt.

Every regular expression sees a bounded window: from its line's start on (at most ``BEFORE``), ``AFTER`` at most. Where
the marks of the lines are in its way, it is asked again about the same rank's lines alone. What was found for a rank is
only counted from then on.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from .lines import LogPiece, split_line
from .literal_search import LiteralScanner, TextBlock
from .patterns import Pattern, parse_out_of_memory
from .speakers import LogLine, SpeakerTracker, line_at, line_start, time_before
from .tracebacks import HEADER, TracebackAssembler
from .types import Speaker, TimelineEvent, Traceback

BEFORE = 1000
AFTER = 2000
OWN_LINES = 40
MOST_OWN_TRIES = 60  # of one needle in one text, for the same rank's lines alone
MOST_PLACES = 2000  # of one literal in one text; beyond, only a few of each block
FEW = 20
MOST_KEPT = 256  # ranks (and attempts) for which one needle's first hit is kept
MOST_DISTINCT = 6  # of one mark with different values, for one rank
SLOW_S = 0.5  # a needle that took so long in one text is left out from then on
REGION_BYTES = 160 << 10  # how far behind its header a traceback is followed
REGIONS_BYTES = 16 << 20  # in one text, and …
LAST_REGIONS_BYTES = 3 << 20  # … as much in its last block in any case
MOST_HEADERS = 4000  # tracebacks followed in one text, and …
LAST_HEADERS = 1000  # … as many in its last block in any case
SHOWN_CHARACTERS = 160
MOST_LINES = 16
MOST_ATTEMPTS = 99


class Match(msgspec.Struct):
    """A needle that was found: for one voice and attempt the first time, and how often in all."""

    needle: Pattern
    voice: Speaker
    attempt: int
    event: TimelineEvent
    shown: str  # the line as it stands in the log, where it is short enough
    stamped: bool = False  # a time stands on the line itself
    count: int = 1
    lines: set[tuple[str, int]] = msgspec.field(default_factory=set)  # (origin, line): where, the first few times


class CandidateMatch(msgspec.Struct):
    """A match, before it is known whether it is kept."""

    needle: Pattern
    line: LogPiece
    raw: str  # the line as it stands in the log
    number: int
    match: re.Match[str]

    @property
    def values(self) -> dict[str, str]:
        """The named numbers of the match."""
        if self.needle.id == "mark:oom":
            return parse_out_of_memory(self.match[0])
        return {name: value for name, value in self.match.groupdict().items() if value is not None}


class Matcher:
    """Everything found of the given needles in one case; ``take`` goes through one text."""

    def __init__(self, needles: Iterable[Pattern]) -> None:
        by_literal: dict[bytes, list[Pattern]] = defaultdict(list)
        for needle in needles:
            by_literal[needle.literal.encode()].append(needle)
        self._needles = dict(by_literal)
        self._header = HEADER.encode()
        self._scanner = LiteralScanner([*self._needles, self._header])
        self._compiled: dict[str, re.Pattern[str]] = {}
        self._spent_s: dict[str, float] = defaultdict(float)
        self.hits: dict[tuple[str, Speaker, int, str], Match] = {}
        self._kept: dict[str, int] = defaultdict(int)

    def take(
        self, blocks: Iterable[TextBlock], voices: SpeakerTracker, attempts: "AttemptCounter"
    ) -> Iterator[tuple[int, int, Traceback] | int]:
        """Go through a text; tracebacks come with attempt and offset, and after each block the bytes done."""
        text = _Text(voices)
        for block, found in self._scanner.ahead(blocks):
            voices.learn(block)
            attempt_at = [(0, attempts.current)]
            for at, literal in self._in_order(found, text, block):
                for needle in self._needles[literal]:
                    self._ask(needle, literal, at, block, text, attempts)
                if attempts.current != attempt_at[-1][1]:
                    attempt_at.append((at, attempts.current))
            for at, traceback in self._tracebacks(found.get(self._header, []), block, text):
                attempt = [number for offset, number in attempt_at if offset <= at][-1]
                yield attempt, block.offset + at, traceback
            voices.survey(block, found, attempt_at, self._scanner)
            yield block.offset + block.end
        voices.end(self._scanner)

    def _in_order(self, found: dict[bytes, list[int]], text: "_Text", block: TextBlock) -> list[tuple[int, bytes]]:
        """The places worth asking about, in the order of the text."""
        chosen: list[tuple[int, bytes]] = []
        for literal, places in found.items():
            if literal not in self._needles:
                continue
            text.places[literal] += len(places)
            if text.places[literal] > MOST_PLACES and len(places) > FEW and not block.last:
                places = places[: FEW // 2] + places[-FEW // 2 :]
            chosen += [(at, literal) for at in places]
        return sorted(chosen)

    def _ask(
        self, needle: Pattern, literal: bytes, at: int, block: TextBlock, text: "_Text", attempts: "AttemptCounter"
    ) -> None:
        if self._spent_s[needle.id] > SLOW_S:
            return
        line = text.line(block, at)
        known = self.hits.get((needle.id, line.voice, attempts.current, ""))
        if known is not None and len(known.lines) >= MOST_LINES:
            known.count += 1
            return
        began = time.perf_counter()
        found = self._search(needle, at, line, block, text)
        self._spent_s[needle.id] += time.perf_counter() - began
        if found is None:
            return
        values = found.values
        before = attempts.current
        if needle.kind == "restart":
            attempts.restart(values)
        elif needle.id == "mark:start":
            attempts.start()
        elif needle.id in ("mark:summary", "message:child-failed"):
            attempts.ended = True
        self._keep(found, at, block, text, before)

    def _search(
        self, needle: Pattern, at: int, line: LogPiece, block: TextBlock, text: "_Text"
    ) -> "CandidateMatch | None":
        """A match in the window around the place, else in the same rank's lines alone."""
        pattern = self._compiled.get(needle.pattern)
        if pattern is None:
            pattern = self._compiled[needle.pattern] = re.compile(needle.pattern, re.MULTILINE)
        begin = line_start(block.data, at, BEFORE)
        window = block.data[begin : at + AFTER].decode("utf-8", errors="replace")
        if match := pattern.search(window.replace("\r", "\n")):
            start = window.rfind("\n", 0, match.start()) + 1
            raw = window[start:].partition("\n")[0]
            if start:
                line = text.piece(raw, match.start() - start)
            return CandidateMatch(needle, line, raw, block.number(begin) + window.count("\n", 0, start), match)
        if needle.crosses_lines and line.token and text.own_tries[needle.id] < MOST_OWN_TRIES:
            text.own_tries[needle.id] += 1
            if match := pattern.search(text.own(block, begin, line)):
                return CandidateMatch(needle, line, window.partition("\n")[0], block.number(at), match)
        return None

    def _keep(self, found: "CandidateMatch", at: int, block: TextBlock, text: "_Text", attempt: int) -> None:
        needle, line, values = found.needle, found.line, found.values
        told = "" if needle.evidence else "|".join(f"{name}={value}" for name, value in sorted(values.items()))
        told = "" if needle.id == "mark:oom" else told
        key = (needle.id, line.voice, attempt, told)
        if key in self.hits:
            self.hits[key].count += 1
            self.hits[key].lines.add((text.voices.origin, found.number))
            return
        self._kept[needle.id] += 1
        if self._kept[needle.id] > MOST_KEPT * (1 if needle.evidence else MOST_DISTINCT):
            return
        stamp = line.time_s if line.time_s is not None else time_before(block.data, at, text.voices.style)
        shown = line.text.strip()
        shown = shown if 0 < len(shown) <= SHOWN_CHARACTERS else found.match[0].strip()
        seen = LogLine(stamp, found.number, block.offset + at, shown[:SHOWN_CHARACTERS])
        event = msgspec.structs.replace(text.voices.event(needle.kind, seen, needle.id), values=values)
        where = {(text.voices.origin, found.number)}
        raw = found.raw.strip()
        whole = len(raw) <= SHOWN_CHARACTERS and raw.endswith(shown) and "\r" not in raw
        self.hits[key] = Match(
            needle, line.voice, attempt, event, raw if whole else event.text, line.time_s is not None, lines=where
        )

    def _tracebacks(self, places: list[int], block: TextBlock, text: "_Text") -> Iterator[tuple[int, Traceback]]:
        """Follow the tracebacks that begin at these places; mixed ones are read together."""
        left = max(REGIONS_BYTES - text.region_bytes, LAST_REGIONS_BYTES if block.last else 0)
        headers_left = max(MOST_HEADERS - text.headers, LAST_HEADERS if block.last else 0)
        for at in places:
            begin = line_start(block.data, at, AFTER)
            if block.offset + begin < text.followed_to or left <= 0 or headers_left <= 0:
                continue
            assembler, position, limit = TracebackAssembler(), begin, begin + REGION_BYTES
            number, headers = block.number(begin), dict[int, int]()
            while position < min(limit, len(block.data)) and len(headers) <= headers_left:
                end = block.data.find(b"\n", position)
                end = len(block.data) if end < 0 else end
                raw = block.data[position : min(end, position + AFTER)].decode("utf-8", errors="replace")
                if HEADER in raw:
                    limit, headers[number] = position + REGION_BYTES, position
                time_s = time_before(block.data, position, text.voices.style) if HEADER in raw else None
                for line in split_line(raw, text.voices.style, text.voices.default):
                    for whole in assembler.feed(line, number, time_s):
                        yield headers.get(whole.first_line, begin), whole
                position, number = end + 1, number + 1
                if not assembler.busy:
                    break
            for whole in assembler.end():
                yield headers.get(whole.first_line, begin), whole
            text.headers += len(headers)
            headers_left -= len(headers)
            text.region_bytes += position - begin
            left -= position - begin
            text.followed_to = block.offset + position


class AttemptCounter:
    """Which start of the job the text is at. Several agents tell of one restart each; they count once."""

    def __init__(self, current: int = 0) -> None:
        self.current = current
        self.ended = False
        self._left: set[str] = set()

    def restart(self, values: dict[str, str]) -> None:
        """An agent says that it starts its workers again."""
        if "count" in values:
            self.current = max(self.current, int(values["count"]))
        elif values["left"] not in self._left:
            self._left.add(values["left"])
            self.current += 1
        self.current = min(self.current, MOST_ATTEMPTS)
        self.ended = False

    def start(self) -> None:
        """A launcher starts; after the end of a job that is another attempt."""
        if self.ended:
            self.current = min(self.current + 1, MOST_ATTEMPTS)
            self.ended = False
            self._left.clear()


class _Text:
    """What is kept while one text is gone through."""

    def __init__(self, voices: SpeakerTracker) -> None:
        self.voices = voices
        self.places: dict[bytes, int] = defaultdict(int)
        self.own_tries: dict[str, int] = defaultdict(int)
        self.followed_to = 0
        self.region_bytes = 0
        self.headers = 0
        self._line: tuple[int, LogPiece] | None = None

    def line(self, block: TextBlock, at: int) -> LogPiece:
        """The line that a place is on: of torn ones the piece."""
        begin, raw = line_at(block.data, at)
        if self._line and self._line[0] == block.offset + begin:
            return self._line[1]
        line = self.piece(raw, at - begin)
        if "]:" not in line.text and "\r" not in raw:
            self._line = (block.offset + begin, line)
        return line

    def piece(self, raw: str, ahead: int) -> LogPiece:
        """Of a raw line the piece that a place in it belongs to."""
        pieces = list(split_line(raw, self.voices.style, self.voices.default))
        for piece in pieces[:-1]:
            if raw.find(piece.text) + len(piece.text) > ahead:
                return piece
        return pieces[-1] if pieces else LogPiece("", self.voices.default)

    def own(self, block: TextBlock, begin: int, first: LogPiece) -> str:
        """The lines of one voice from a place on, without their marks."""
        kept: list[str] = []
        window = block.data[begin : begin + AFTER * 4].decode("utf-8", errors="replace")
        for raw in window.split("\n")[: OWN_LINES * 8]:
            for line in split_line(raw, self.voices.style, self.voices.default):
                if line.voice == first.voice:
                    kept.append(line.text)
            if len(kept) >= OWN_LINES:
                break
        return "\n".join(kept)[: BEFORE + AFTER]
