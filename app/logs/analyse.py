"""Analyse logs: evidence, the timeline of the ranks, and the short texts that a person may have written."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from ...knowledge.schema import Knowledge
from ..evidence import Evidence
from . import versions
from .attempts import AttemptCounter
from .findings import findings_of
from .first_failure import mark_first_failure
from .free_text import split_words
from .literal_search import overlapping_blocks
from .matcher import Match, Matcher
from .patterns import Pattern, build_patterns
from .programs import is_of_other_programs
from .prose import lines_of_person
from .read import LogInput, clean_text, empty_input_error, read_chunks
from .script_error import RAISED_IN
from .timeline import RankResolver, ScannedText, build_timeline, normalise_message
from .types import LOCATION_MARK, LogAnalysis, Timeline, TimelineEvent, Traceback, Writer
from .writers import WriterTracker

PROSE_CHARACTERS = 8000  # longer texts are logs, not descriptions by a user
MOST_DESCRIPTIONS = 50
FOLLOWER_STRENGTH = 0.4
OTHER_VERSION_STRENGTH = 0.5
SCOPE_BYTES = 64 << 10  # at both ends of a text, searched for terms of distributed training
SHOWN_CHARACTERS = 160
EXCEPTION_CHARACTERS = 90  # of an exception; the rest of the line is for its location
MOST_OF_WRITER = 12  # tracebacks of one writer in one attempt; the first ones count
MOST_TRACEBACKS = 2000  # of one text

Progress = Callable[[int, int], None]  # bytes done, bytes in total (0: not known)


def analyse_logs(sources: Sequence[LogInput], knowledge: Knowledge, progress: Progress | None = None) -> LogAnalysis:
    """Read the sources once, whatever their size, and return what was found in them.

    Raises:
        UserError: A source is missing, unreadable or binary, or everything is empty.
        InspectionError: A pipe was not closed.
    """
    read = scan_sources(sources, build_patterns(knowledge), progress)
    hits, texts, timeline = read.hits, read.texts, read.timeline
    of_other_versions = versions.unprintable_signatures(knowledge, versions.versions_in_log(hits))
    log = [
        *_evidence(
            [hit for hit in hits if hit not in read.quotes], RankResolver(texts, hits), timeline, of_other_versions
        ),
        *(findings_of(timeline) if timeline else []),
    ]
    known = {item.id for item in log}
    evidence = log + [item for item in map(_quoted, read.quotes) if item.id not in known]
    prose = _descriptions(read.ends)
    scope = any(not item.id.startswith("message:") for item in evidence) or any(
        end.is_about(knowledge) for end in read.ends
    )
    errors = [
        (f"{text.origin}:{traceback.message_line}", f"{traceback.exception}: {traceback.message}"[:SHOWN_CHARACTERS])
        for text in texts
        for _, traceback, _ in text.tracebacks
    ]
    other = is_of_other_programs((end.shown() for end in read.ends if end.has_content), knowledge)
    return LogAnalysis(evidence, timeline, prose, scope, errors, other)


def scan_sources(
    sources: Sequence[LogInput], patterns: Iterable[Pattern], progress: Progress | None = None
) -> "ScanResult":
    """Scan the sources once: matches of the patterns by rank, and the timeline.

    Raises:
        UserError: A source is missing, unreadable or binary, or everything is empty.
        InspectionError: A pipe was not closed.
    """
    matcher = Matcher(patterns)
    texts: list[ScannedText] = []
    ends: list[_TextEnds] = []
    in_all, done = sum(source.size_bytes for source in sources), 0
    for source in sources:
        end = _TextEnds(source.origin)
        text = ScannedText(source.origin, {}, {}, {}, [])
        tracker = WriterTracker(source.origin, source.place.writer, source.size_bytes)
        attempts = AttemptCounter(source.place.attempt or 0)
        size, seen_tracebacks = 0, Counter[tuple[int, Writer]]()
        for found in matcher.scan(overlapping_blocks(end.record(read_chunks(source))), tracker, attempts):
            if isinstance(found, tuple):
                attempt, offset, traceback = found
                seen_tracebacks[attempt, traceback.writer] += 1
                if (
                    seen_tracebacks[attempt, traceback.writer] <= MOST_OF_WRITER
                    and len(text.tracebacks) < MOST_TRACEBACKS
                ):
                    text.tracebacks.append((attempt, traceback, _event(traceback, tracker, offset)))
                continue
            size = found
            if progress:
                progress(done + size, in_all)
        done += size
        text.writer_lines, text.mapped, text.steps = tracker.first_and_last(), tracker.mapped, tracker.steps
        text.last_steps, text.stamped = tracker.last_steps, tracker.stamped()
        texts.append(text)
        ends.append(end)
    if not any(end.has_content for end in ends):
        raise empty_input_error([source.origin for source in sources])
    hits = list(matcher.matches.values())
    quotes = _quotes(hits, texts, ends)
    timeline = build_timeline(texts, [hit for hit in hits if hit not in quotes])
    return ScanResult(texts, hits, quotes, mark_first_failure(timeline) if timeline else None, ends)


def _quotes(hits: Sequence[Match], texts: Iterable[ScannedText], ends: Iterable["_TextEnds"]) -> list[Match]:
    """Return the matches in sentences of a person, if a program shows an error elsewhere: what is quoted may be another
    one."""
    written = {
        (end.origin, number) for end in ends if (text := end.prose()) is not None for number in lines_of_person(text)
    }
    quotes = [hit for hit in hits if hit.count <= len(hit.lines) and hit.lines <= written]
    shown = any(text.tracebacks for text in texts) or any(
        hit.pattern.kind == "error" and hit not in quotes for hit in hits
    )
    return quotes if shown else []


def _descriptions(ends: Iterable["_TextEnds"]) -> list[tuple[str, str]]:
    """Return the short texts with their origins, each text once: a person writes few, a job may write thousands."""
    found: dict[str, str] = {}
    for end in ends:
        if len(found) == MOST_DESCRIPTIONS:
            break
        if (shown := end.prose()) is not None:
            found.setdefault(shown, end.origin)
    return [(origin, text) for text, origin in found.items()]


def _event(traceback: Traceback, tracker: WriterTracker, offset: int) -> TimelineEvent:
    where = f"{tracker.origin}:{traceback.first_line}"
    text_of_error = f"{traceback.exception}: {traceback.message}" if traceback.message else traceback.exception
    if len(text_of_error) > EXCEPTION_CHARACTERS:
        text_of_error = f"{text_of_error[: EXCEPTION_CHARACTERS - 1].rstrip()}…"
    shown = text_of_error + (f"{LOCATION_MARK}{traceback.location}" if traceback.frame else "")
    values = {"message": normalise_message(traceback.message), "location": traceback.location}
    values |= {"collective": traceback.collective} if traceback.collective else {}
    values |= {"main": traceback.main} if traceback.main else {}
    values |= {RAISED_IN: traceback.raised_in}
    values |= {"code": traceback.frame.code} if traceback.frame and traceback.frame.code else {}
    id_ = f"exception:{traceback.exception.rpartition('.')[2]}"
    place = tracker.place(offset)
    return TimelineEvent("error", traceback.time_s, traceback.first_line, where, shown, id_, place, values=values)


def _evidence(
    hits: Iterable[Match], resolver: RankResolver, timeline: Timeline | None, of_other_versions: Collection[str]
) -> Iterator[Evidence]:
    """Yield one piece of evidence for each id, at its first occurrence.

    Evidence from ranks other than the culprit is weaker, and so is wording of other versions than those of the log
    (``of_other_versions``).
    """
    culprit = timeline.culprit if timeline else None
    seen: set[str] = set()
    for hit in hits:
        if not hit.pattern.evidence or hit.pattern.id in seen:
            continue
        seen.add(hit.pattern.id)
        writer = resolver.resolve(hit.writer)
        rank = None if writer.local else writer.rank
        host, values = resolver.host(writer), dict(hit.event.values)
        follows = culprit is not None and rank is not None and rank != culprit
        strength = (FOLLOWER_STRENGTH if follows else 1.0) * (
            OTHER_VERSION_STRENGTH if hit.pattern.id in of_other_versions else 1.0
        )
        yield Evidence(
            hit.pattern.id,
            "log",
            hit.shown.split("\n")[0],
            where=hit.event.where,
            rank=rank,
            host=host,
            values=values,
            strength=strength,
        )


def _quoted(hit: Match) -> Evidence:
    """Return the evidence of a message that a person has written in a sentence: it describes, it does not show."""
    return Evidence(hit.pattern.id, "description", hit.shown.split("\n")[0], where=hit.event.where)


class ScanResult(msgspec.Struct):
    """The result of scanning the texts of a case."""

    texts: list[ScannedText]
    hits: list[Match]
    quotes: list[Match]  # those of the hits that a person has written, where a program shows an error
    timeline: Timeline | None
    ends: list["_TextEnds"]


class _TextEnds(msgspec.Struct):
    """The first and last bytes of a text; all of a short one."""

    origin: str
    head: bytes = b""
    tail: bytes = b""
    length: int = 0
    has_content: bool = False

    def record(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the same parts and record their ends."""
        for part in parts:
            self.head += part[: max(0, SCOPE_BYTES - len(self.head))]
            self.tail = (self.tail + part[-SCOPE_BYTES:])[-SCOPE_BYTES:]
            self.length += len(part)
            self.has_content = self.has_content or bool(part.strip())
            yield part

    def prose(self) -> str | None:
        """Return the whole text if it is short enough to be written by a person, else None."""
        if self.length > 4 * PROSE_CHARACTERS:
            return None
        text = clean_text(self.head)
        return text if len(text) <= PROSE_CHARACTERS and text.strip() else None

    def shown(self) -> str:
        """Return both ends of a long text, all of a short one."""
        return clean_text(self.head + (b"\n" + self.tail if self.length > SCOPE_BYTES else b""))

    def is_about(self, knowledge: Knowledge) -> bool:
        """Return whether any word at either end belongs to distributed training."""
        return not split_words(self.shown()).isdisjoint(knowledge.in_scope_words)
