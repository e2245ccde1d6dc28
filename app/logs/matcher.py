"""Match the regular expressions where their literals occur, and keep the matches by rank and attempt.

Each regular expression sees a bounded window: from the start of its line (at most ``BEFORE``) to at most ``AFTER``. If
the prefixes of the lines prevent a match, it is tried again on the lines of the same rank alone. After the first match
of a rank, further ones are only counted.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from .attempts import AttemptCounter
from .lines import LogPiece, split_line
from .literal_search import LiteralScanner, TextBlock
from .patterns import Pattern, parse_out_of_memory
from .programs import is_line_of_other_program
from .tracebacks import HEADER, SYNTAX_ERRORS, SYNTAX_PLACE, TracebackAssembler, is_escaped
from .types import TimelineEvent, Traceback, Writer
from .writers import LogLine, WriterTracker, line_at, line_start, time_before

BEFORE = 1000
AFTER = 2000
ESCAPED_BYTES = 16_000  # of a line that holds a whole traceback
WRITER_LINES = 40
MOST_WRITER_TRIES = 60  # of one pattern in one text, on the lines of one rank alone
MOST_PLACES = 2000  # of one literal in one text; after that only a few in each block
FEW = 20
MOST_MATCHES = 256  # of one pattern: one for each rank and attempt
MOST_DISTINCT = 6  # of one mark with different values, by rank
SLOW_S = 0.5  # a pattern that takes longer in a text is no longer tried
REGION_BYTES = 160 << 10  # after its header, in which a traceback is followed
REGIONS_BYTES = 16 << 20  # in one text, and …
LAST_REGIONS_BYTES = 3 << 20  # … as much in its last block in any case
MOST_HEADERS = 4000  # tracebacks followed in one text, and …
LAST_HEADERS = 1000  # … as many in its last block in any case
SYNTAX_LINES = 6  # from the message of a syntax error up to its place
SHOWN_CHARACTERS = 160
MOST_LINES = 16


class Match(msgspec.Struct):
    """A pattern that matched: the first match of one writer and attempt, and the number of all matches."""

    pattern: Pattern
    writer: Writer
    attempt: int
    event: TimelineEvent
    shown: str  # the line as in the log, if it is short enough
    stamped: bool = False  # the line has a time stamp of its own
    count: int = 1
    lines: set[tuple[str, int]] = msgspec.field(default_factory=set)  # (origin, line) of the first few matches


class CandidateMatch(msgspec.Struct):
    """A match that may still be dropped as a duplicate."""

    pattern: Pattern
    line: LogPiece
    raw: str  # the line as in the log
    number: int
    match: re.Match[str]

    @property
    def values(self) -> dict[str, str]:
        """The named groups of the match."""
        if self.pattern.id == "mark:oom":
            return parse_out_of_memory(self.match[0])
        return {name: value for name, value in self.match.groupdict().items() if value is not None}


class Matcher:
    """Collects the matches of patterns in all texts of a case; ``scan`` reads one text."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        by_literal: dict[bytes, list[Pattern]] = defaultdict(list)
        for pattern in patterns:
            by_literal[pattern.literal.encode()].append(pattern)
        self._by_literal = dict(by_literal)
        self._header = HEADER.encode()
        self._starts = [self._header, *(name.encode() for name in SYNTAX_ERRORS)]
        self._scanner = LiteralScanner([*self._by_literal, *self._starts])
        self._compiled: dict[str, re.Pattern[str]] = {}
        self._spent_s: dict[str, float] = defaultdict(float)
        self.matches: dict[tuple[str, Writer, int, str], Match] = {}
        self._matches_kept: dict[str, int] = defaultdict(int)

    def scan(
        self, blocks: Iterable[TextBlock], tracker: WriterTracker, attempts: AttemptCounter
    ) -> Iterator[tuple[int, int, Traceback] | int]:
        """Scan a text: yield tracebacks with attempt and offset, and after each block the number of bytes done."""
        text = _TextState(tracker)
        for block, found in self._scanner.look_ahead(blocks):
            tracker.learn(block)
            attempt_at = [(0, attempts.current)]
            for at, literal in self._in_order(found, text, block):
                for pattern in self._by_literal[literal]:
                    self._try_pattern(pattern, literal, at, block, text, attempts)
                if attempts.current != attempt_at[-1][1]:
                    attempt_at.append((at, attempts.current))
            places = sorted(at for start in self._starts for at in found.get(start, []))
            for at, traceback in self._tracebacks(places, block, text):
                attempt = [number for offset, number in attempt_at if offset <= at][-1]
                yield attempt, block.offset + at, traceback
            tracker.record_ends(block, found, attempt_at, self._scanner)
            yield block.offset + block.end
        tracker.end(self._scanner)

    def _in_order(self, found: dict[bytes, list[int]], text: "_TextState", block: TextBlock) -> list[tuple[int, bytes]]:
        """Return the positions to match, in the order of the text."""
        chosen: list[tuple[int, bytes]] = []
        for literal, places in found.items():
            if literal not in self._by_literal:
                continue
            text.places[literal] += len(places)
            if text.places[literal] > MOST_PLACES and len(places) > FEW and not block.last:
                places = places[: FEW // 2] + places[-FEW // 2 :]
            chosen += [(at, literal) for at in places]
        return sorted(chosen)

    def _try_pattern(
        self,
        pattern: Pattern,
        literal: bytes,
        at: int,
        block: TextBlock,
        text: "_TextState",
        attempts: AttemptCounter,
    ) -> None:
        if self._spent_s[pattern.id] > SLOW_S:
            return
        line = text.line(block, at)
        known = self.matches.get((pattern.id, line.writer, attempts.current, ""))
        if known is not None and len(known.lines) >= MOST_LINES:
            known.count += 1
            return
        began = time.perf_counter()
        found = self._search(pattern, at, line, block, text)
        self._spent_s[pattern.id] += time.perf_counter() - began
        if found is None or is_line_of_other_program(found.raw):
            return
        values = found.values
        before = attempts.current
        if pattern.kind == "restart":
            attempts.restart(values)
        elif pattern.id == "mark:start":
            attempts.start(text.time(found.line, block, at))
        elif pattern.id in ("mark:summary", "message:child-failed"):
            attempts.end(text.time(found.line, block, at))
        self._add_match(found, at, block, text, before)

    def _search(
        self, pattern: Pattern, at: int, line: LogPiece, block: TextBlock, text: "_TextState"
    ) -> "CandidateMatch | None":
        """Match in the window around the position, else in the lines of the same rank alone."""
        compiled = self._compiled.get(pattern.pattern)
        if compiled is None:
            compiled = self._compiled[pattern.pattern] = re.compile(pattern.pattern, re.MULTILINE)
        begin = line_start(block.data, at, BEFORE)
        window = block.data[begin : at + AFTER].decode("utf-8", errors="replace")
        if match := compiled.search(window.replace("\r", "\n")):
            start = window.rfind("\n", 0, match.start()) + 1
            raw = window[start:].partition("\n")[0]
            if start:
                line = text.piece(raw, match.start() - start)
            return CandidateMatch(pattern, line, raw, block.number(begin) + window.count("\n", 0, start), match)
        if pattern.crosses_lines and line.token and text.writer_tries[pattern.id] < MOST_WRITER_TRIES:
            text.writer_tries[pattern.id] += 1
            if match := compiled.search(text.lines_of_writer(block, begin, line)):
                return CandidateMatch(pattern, line, window.partition("\n")[0], block.number(at), match)
        return None

    def _add_match(self, found: "CandidateMatch", at: int, block: TextBlock, text: "_TextState", attempt: int) -> None:
        pattern, line, values = found.pattern, found.line, found.values
        values_key = "" if pattern.evidence else "|".join(f"{name}={value}" for name, value in sorted(values.items()))
        values_key = "" if pattern.id == "mark:oom" else values_key
        key = (pattern.id, line.writer, attempt, values_key)
        if key in self.matches:
            self.matches[key].count += 1
            self.matches[key].lines.add((text.tracker.origin, found.number))
            return
        self._matches_kept[pattern.id] += 1
        if self._matches_kept[pattern.id] > MOST_MATCHES * (1 if pattern.evidence else MOST_DISTINCT):
            return
        stamp = text.time(line, block, at)
        shown = line.text.strip()
        shown = shown if 0 < len(shown) <= SHOWN_CHARACTERS else found.match[0].strip()
        seen = LogLine(stamp, found.number, block.offset + at, shown[:SHOWN_CHARACTERS])
        event = msgspec.structs.replace(text.tracker.event(pattern.kind, seen, pattern.id), values=values)
        where = {(text.tracker.origin, found.number)}
        raw = found.raw.strip()
        whole = len(raw) <= SHOWN_CHARACTERS and raw.endswith(shown) and "\r" not in raw
        self.matches[key] = Match(
            pattern, line.writer, attempt, event, raw if whole else event.text, line.time_s is not None, lines=where
        )

    def _tracebacks(self, places: list[int], block: TextBlock, text: "_TextState") -> Iterator[tuple[int, Traceback]]:
        """Assemble the tracebacks that begin at these positions; interleaved ones are read together."""
        left = max(REGIONS_BYTES - text.region_bytes, LAST_REGIONS_BYTES if block.last else 0)
        headers_left = max(MOST_HEADERS - text.headers, LAST_HEADERS if block.last else 0)
        for at in places:
            begin = line_start(block.data, at, AFTER)
            if not block.data.startswith(self._header, at):
                begin = _place_of_syntax_error(block.data, begin)
            if begin < 0 or block.offset + begin < text.followed_to or left <= 0 or headers_left <= 0:
                continue
            assembler, position, limit = TracebackAssembler(), begin, begin + REGION_BYTES
            number, headers = block.number(begin), dict[int, int]()
            while position < min(limit, len(block.data)) and len(headers) <= headers_left:
                end = block.data.find(b"\n", position)
                end = len(block.data) if end < 0 else end
                raw = block.data[position : min(end, position + AFTER)].decode("utf-8", errors="replace")
                if is_escaped(raw):
                    raw = block.data[position : min(end, position + ESCAPED_BYTES)].decode("utf-8", errors="replace")
                if HEADER in raw:
                    limit, headers[number] = position + REGION_BYTES, position
                time_s = time_before(block.data, position, text.tracker.style) if HEADER in raw else None
                for line in split_line(raw, text.tracker.style, text.tracker.default):
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


def _place_of_syntax_error(data: bytes, begin: int) -> int:
    """Return the start of the line that names the file and line of a syntax error, a few lines above, or -1."""
    for _ in range(SYNTAX_LINES):
        end = begin - 1
        if end <= 0:
            break
        begin = line_start(data, end, AFTER)
        if SYNTAX_PLACE.search(data[begin:end].decode("utf-8", errors="replace")):
            return begin
    return -1


class _TextState:
    """The state of scanning one text."""

    def __init__(self, tracker: WriterTracker) -> None:
        self.tracker = tracker
        self.places: dict[bytes, int] = defaultdict(int)
        self.writer_tries: dict[str, int] = defaultdict(int)
        self.followed_to = 0
        self.region_bytes = 0
        self.headers = 0
        self._line: tuple[int, LogPiece] | None = None

    def line(self, block: TextBlock, at: int) -> LogPiece:
        """Return the piece of the line at a position."""
        begin, raw = line_at(block.data, at)
        if self._line and self._line[0] == block.offset + begin:
            return self._line[1]
        line = self.piece(raw, at - begin)
        if "]:" not in line.text and "\r" not in raw:
            self._line = (block.offset + begin, line)
        return line

    def time(self, line: LogPiece, block: TextBlock, at: int) -> float | None:
        """Return the time stamp of the line at a position, or the last one before it."""
        return line.time_s if line.time_s is not None else time_before(block.data, at, self.tracker.style)

    def piece(self, raw: str, ahead: int) -> LogPiece:
        """Return the piece of a raw line to which an offset belongs."""
        pieces = list(split_line(raw, self.tracker.style, self.tracker.default))
        for piece in pieces[:-1]:
            if raw.find(piece.text) + len(piece.text) > ahead:
                return piece
        return pieces[-1] if pieces else LogPiece("", self.tracker.default)

    def lines_of_writer(self, block: TextBlock, begin: int, first: LogPiece) -> str:
        """Return the lines of one writer from a position on, without their prefixes."""
        kept: list[str] = []
        window = block.data[begin : begin + AFTER * 4].decode("utf-8", errors="replace")
        for raw in window.split("\n")[: WRITER_LINES * 8]:
            for line in split_line(raw, self.tracker.style, self.tracker.default):
                if line.writer == first.writer:
                    kept.append(line.text)
            if len(kept) >= WRITER_LINES:
                break
        return "\n".join(kept)[: BEFORE + AFTER]
