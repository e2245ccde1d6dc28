"""All that handed-in texts say: evidence, a timeline of the ranks, and the short texts that may be a person's words."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from ...knowledge.schema import Knowledge
from ..evidence import Evidence
from . import versions
from .findings import findings_of
from .first_failure import mark_first_failure
from .literal_search import overlapping_blocks
from .matcher import AttemptCounter, Match, Matcher
from .patterns import Pattern, build_patterns
from .read import LogInput, clean_text, empty_input_error, read_chunks
from .speakers import SpeakerTracker
from .timeline import RankResolver, ScannedText, build_timeline, normalise_message
from .types import LogAnalysis, Speaker, Timeline, TimelineEvent, Traceback

PROSE_CHARACTERS = 8000  # longer texts are logs; their words are not the user's
FOLLOWER_STRENGTH = 0.4
FOREIGN_STRENGTH = 0.5
SCOPE_BYTES = 64 << 10  # at both ends of a text, where words of the field are looked for
SHOWN_CHARACTERS = 160
SAID_CHARACTERS = 90  # of an exception, so that there is room for where it was raised
MOST_OF_VOICE = 12  # tracebacks of one voice in one attempt; the first ones count
MOST_TRACEBACKS = 2000  # of one text

Progress = Callable[[int, int], None]  # bytes done and in all (0: not known)


def analyse_logs(sources: Sequence[LogInput], knowledge: Knowledge, progress: Progress | None = None) -> LogAnalysis:
    """Read the sources once, whatever their size, and say what is in them.

    Raises:
        UserError: A source is missing, unreadable or binary, or everything is empty.
        CouldNotLook: A pipe did not come to its end.
    """
    read = scan_sources(sources, build_patterns(knowledge), progress)
    hits, texts, timeline = read.hits, read.texts, read.timeline
    foreign = versions.unprintable_signatures(knowledge, versions.versions_in_log(hits))
    evidence = [
        *_evidence(hits, RankResolver(texts, hits), timeline, foreign),
        *(findings_of(timeline) if timeline else []),
    ]
    prose = [(end.origin, shown) for end in read.ends if (shown := end.prose()) is not None]
    scope = any(not item.id.startswith("message:") for item in evidence) or any(
        end.about(knowledge) for end in read.ends
    )
    errors = [
        (f"{text.origin}:{traceback.said_line}", f"{traceback.exception}: {traceback.message}"[:SHOWN_CHARACTERS])
        for text in texts
        for _, traceback, _ in text.tracebacks
    ]
    return LogAnalysis(evidence, timeline, prose, scope, errors)


def scan_sources(
    sources: Sequence[LogInput], needles: Iterable[Pattern], progress: Progress | None = None
) -> "ScanResult":
    """Go through the sources once: what was found of the needles, by rank, and the timeline they make.

    Raises:
        UserError: A source is missing, unreadable or binary, or everything is empty.
        CouldNotLook: A pipe did not come to its end.
    """
    collector = Matcher(needles)
    texts: list[ScannedText] = []
    ends: list[_Ends] = []
    in_all, done = sum(source.size_bytes for source in sources), 0
    for source in sources:
        end = _Ends(source.origin)
        text = ScannedText(source.origin, {}, {}, {}, [])
        voices = SpeakerTracker(source.origin, source.place.voice, source.size_bytes)
        attempts = AttemptCounter(source.place.attempt or 0)
        size, told = 0, Counter[tuple[int, Speaker]]()
        for found in collector.take(overlapping_blocks(end.watch(read_chunks(source))), voices, attempts):
            if isinstance(found, tuple):
                attempt, offset, traceback = found
                told[attempt, traceback.voice] += 1
                if told[attempt, traceback.voice] <= MOST_OF_VOICE and len(text.tracebacks) < MOST_TRACEBACKS:
                    text.tracebacks.append((attempt, traceback, _event(traceback, voices, offset)))
                continue
            size = found
            if progress:
                progress(done + size, in_all)
        done += size
        text.spoken, text.mapped, text.steps = voices.ends(), voices.mapped, voices.steps
        text.last_steps, text.stamped = voices.last_steps, voices.stamped()
        texts.append(text)
        ends.append(end)
    if not any(end.anything for end in ends):
        raise empty_input_error([source.origin for source in sources])
    hits = list(collector.hits.values())
    timeline = build_timeline(texts, hits)
    return ScanResult(texts, hits, mark_first_failure(timeline) if timeline else None, ends)


def _event(traceback: Traceback, voices: SpeakerTracker, offset: int) -> TimelineEvent:
    where = f"{voices.origin}:{traceback.first_line}"
    said = f"{traceback.exception}: {traceback.message}" if traceback.message else traceback.exception
    shown = f"{said[:SAID_CHARACTERS]}" + (f"   at {traceback.location}" if traceback.frame else "")
    values = {"message": normalise_message(traceback.message), "location": traceback.location}
    values |= {"collective": traceback.collective} if traceback.collective else {}
    id_ = f"exception:{traceback.exception.rpartition('.')[2]}"
    place = voices.place(offset)
    return TimelineEvent("error", traceback.time_s, traceback.first_line, where, shown, id_, place, values=values)


def _evidence(
    hits: Iterable[Match], resolver: RankResolver, timeline: Timeline | None, foreign: Collection[str]
) -> Iterator[Evidence]:
    """One piece of evidence for each id: where it is seen first. What only the others of a rank that was first to fail
    say counts less, and so does the wording (``foreign``) of versions that the log does not name."""
    culprit = timeline.culprit if timeline else None
    seen: set[str] = set()
    for hit in hits:
        if not hit.needle.evidence or hit.needle.id in seen:
            continue
        seen.add(hit.needle.id)
        voice = resolver.voice(hit.voice)
        rank = None if voice.local else voice.rank
        host, values = resolver.host(voice), dict(hit.event.values)
        follows = culprit is not None and rank is not None and rank != culprit
        strength = (FOLLOWER_STRENGTH if follows else 1.0) * (FOREIGN_STRENGTH if hit.needle.id in foreign else 1.0)
        yield Evidence(
            hit.needle.id,
            "log",
            hit.shown.split("\n")[0],
            where=hit.event.where,
            rank=rank,
            host=host,
            values=values,
            strength=strength,
        )


class ScanResult(msgspec.Struct):
    """What one pass over the texts of a case has found."""

    texts: list[ScannedText]
    hits: list[Match]
    timeline: Timeline | None
    ends: list["_Ends"]


class _Ends(msgspec.Struct):
    """The first and last bytes of a text that goes by; the whole of a short one."""

    origin: str
    head: bytes = b""
    tail: bytes = b""
    length: int = 0
    anything: bool = False

    def watch(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """The same parts, remembered."""
        for part in parts:
            self.head += part[: max(0, SCOPE_BYTES - len(self.head))]
            self.tail = (self.tail + part[-SCOPE_BYTES:])[-SCOPE_BYTES:]
            self.length += len(part)
            self.anything = self.anything or bool(part.strip())
            yield part

    def prose(self) -> str | None:
        """The whole text, where it is short enough to be a person's."""
        if self.length > 4 * PROSE_CHARACTERS:
            return None
        text = clean_text(self.head)
        return text if len(text) <= PROSE_CHARACTERS and text.strip() else None

    def about(self, knowledge: Knowledge) -> bool:
        """Whether any word at either end belongs to distributed training."""
        from .free_text import split_words

        words = split_words(self.head.decode("utf-8", errors="replace"))
        if self.length > SCOPE_BYTES:
            words |= split_words(self.tail.decode("utf-8", errors="replace"))
        return not words.isdisjoint(knowledge.scope_words)
