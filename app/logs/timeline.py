"""Build the timeline of a case: the track of each rank by attempt.

Events that the knowledge base classifies as consequences of another failure are not failures of the rank itself.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from .exception_types import is_own_fault
from .matcher import Match
from .types import UNKNOWN_WRITER, Attempt, Timeline, TimelineEvent, Traceback, Track, Writer
from .writers import StepRange

MOST_EVENTS = 200  # of one track, half from its start, half from its end
CONSEQUENCE_EXCEPTIONS = (
    "ChildFailedError|SignalException|KeyboardInterrupt|CalledProcessError|ProcessExitedException|SystemExit|"
    "ProcessRaisedException|RayTaskError|BrokenPipeError|ConnectionResetError|EOFError"
)
CONSEQUENCE = re.compile(
    rf"(?:{CONSEQUENCE_EXCEPTIONS})$|Connection (?:closed|reset)|Broken pipe|[Ss]ocket [Tt]imeout|ncclRemoteError|"
    r"remote process exited|[Tt]imed out waiting|wait timeout after|SIGTERM|store has been closed"
)
LINES_AFTER = 7  # of a traceback that may belong to its message
DIGITS = re.compile(r"0x[0-9a-f]+|\d+")
ENDED_BY_LAUNCHER = (-15, 143)  # exit codes of ranks that the launcher terminated


class ScannedText(msgspec.Struct):
    """The result of scanning one text."""

    origin: str
    writer_lines: dict[tuple[int, Writer], tuple[TimelineEvent, TimelineEvent]]
    mapped: dict[tuple[str, int], int]
    steps: dict[int, StepRange]
    tracebacks: list[tuple[int, Traceback, TimelineEvent]]
    last_steps: dict[tuple[int, Writer], TimelineEvent] = msgspec.field(default_factory=dict)
    stamped: set[tuple[int, Writer]] = msgspec.field(default_factory=set)  # writers whose last line has a time stamp


class RankResolver:
    """Unifies the names of a rank: local ranks become global ones if the mapping is known."""

    def __init__(self, texts: Iterable[ScannedText], hits: Iterable[Match]) -> None:
        self._ranks: dict[tuple[str, int], int] = {}
        writers = {writer for text in texts for _, writer in text.writer_lines}
        largest: dict[tuple[str, int], int] = {}
        for text in texts:
            self._ranks |= text.mapped
        for hit in hits:
            writers.add(hit.writer)
            if hit.pattern.id == "mark:nccl-rank" and hit.writer.host:
                key, of = (hit.writer.host, int(hit.event.values["gpu"])), int(hit.event.values["of"])
                if of > largest.get(key, 0):
                    largest[key], self._ranks[key] = of, int(hit.event.values["rank"])
        self._hosts = {rank: host for (host, _), rank in self._ranks.items() if host}
        self._one_host = len({writer.host for writer in writers if writer.local}) <= 1
        self._global = any(writer.rank is not None and not writer.local for writer in writers)

    def resolve(self, writer: Writer) -> Writer:
        """Return the writer with its global rank.

        A local rank without a known global one becomes unknown if other writers have global ranks.
        """
        if not writer.local or writer.rank is None:
            return writer
        if (writer.host, writer.rank) in self._ranks:
            return Writer(self._ranks[writer.host, writer.rank])
        if self._one_host:
            return Writer(writer.rank)
        return UNKNOWN_WRITER if self._global else writer

    def host(self, writer: Writer) -> str:
        """Return the host of a writer, or ""."""
        return writer.host or self._hosts.get(writer.rank if writer.rank is not None else -1, "")


def build_timeline(texts: list[ScannedText], hits: list[Match]) -> Timeline | None:
    """Build the timeline of all texts, or None if there is nothing in them."""
    resolver = RankResolver(texts, hits)
    writer_lines: dict[tuple[int, Writer], list[tuple[TimelineEvent, TimelineEvent]]] = defaultdict(list)
    events: dict[tuple[int, Writer], list[TimelineEvent]] = defaultdict(list)
    for text in texts:
        for (attempt, writer), ends in text.writer_lines.items():
            writer_lines[attempt, resolver.resolve(writer)].append(ends)
        for attempt, steps in text.steps.items():
            found = [steps.first, steps.last] if steps.first is not steps.last else [steps.first]
            events[attempt, UNKNOWN_WRITER] += [event for event in found if event]
    by_writer: dict[Writer, list[Match]] = defaultdict(list)
    for hit in hits:
        by_writer[hit.writer].append(hit)
    echoes: dict[tuple[str, Writer], list[Traceback]] = defaultdict(list)
    for text in texts:
        for attempt, traceback, event, until in _with_message_end(text):
            message = range(traceback.message_line, until)
            if _is_consequence(traceback, message, text.origin, by_writer[traceback.writer]):
                echoes[text.origin, traceback.writer].append(traceback)
                event = msgspec.structs.replace(event, kind="consequence")
            events[attempt, resolver.resolve(traceback.writer)].append(event)
    for hit in hits:
        event = msgspec.structs.replace(hit.event, count=hit.count)
        tracebacks = echoes.get((event.where.rpartition(":")[0], hit.writer), [])
        if event.kind == "error" and any(t.first_line <= event.line <= t.last_line for t in tracebacks):
            event = msgspec.structs.replace(event, kind="note")
        events[hit.attempt, _writer_of(hit, resolver)].append(event)
    several = len([text for text in texts if text.writer_lines]) > 1
    parts: dict[int, set[Writer]] = defaultdict(set)
    for number, writer in (*writer_lines, *events):
        parts[number].add(writer)
    attempts = [
        _attempt(
            number,
            {writer: writer_lines[number, writer] for writer in writers},
            {writer: events[number, writer] for writer in writers},
            resolver,
            several,
        )
        for number, writers in sorted(parts.items())
    ]
    if not attempts:
        return None
    ordered = not several or all(
        event.time_s is not None for attempt in attempts for track in attempt.tracks for event in own_failures(track)
    )
    return Timeline(attempts, ordered=ordered)


def all_events(attempt: Attempt) -> Iterator[tuple[Track | None, TimelineEvent]]:
    """Yield all events of an attempt with their tracks."""
    for track in attempt.tracks:
        for event in track.events:
            yield track, event
    for event in attempt.shared:
        yield None, event


def own_failures(track: Track) -> list[TimelineEvent]:
    """Return the errors of a track, without those on the line of a collective's time-out."""
    waited = {event.where for event in track.events if event.id == "mark:watchdog"}
    return [event for event in track.events if event.kind == "error" and event.where not in waited]


def normalise_message(message: str) -> str:
    """Return a message without its numbers, so that the same message of several ranks compares equal."""
    return DIGITS.sub("#", message)[:120]


def _writer_of(hit: Match, resolver: RankResolver) -> Writer:
    """Return the writer to whose track a match belongs: a launcher's report on a rank belongs to that rank."""
    values = hit.event.values
    if hit.event.kind in ("exit", "summary"):
        if "rank" in values:
            return Writer(int(values["rank"]))
        if "local" in values:
            return resolver.resolve(Writer(int(values["local"]), hit.writer.host, local=True))
    return resolver.resolve(hit.writer)


def _with_message_end(text: ScannedText) -> Iterator[tuple[int, Traceback, TimelineEvent, int]]:
    """Yield each traceback with the line at which its message ends: before the next one of the same writer."""
    following: dict[Writer, int] = {}
    for attempt, traceback, event in reversed(text.tracebacks):
        until = traceback.last_line + LINES_AFTER
        yield attempt, traceback, event, min(until, following.get(traceback.writer, until))
        following[traceback.writer] = traceback.first_line


def _is_consequence(traceback: Traceback, message: range, origin: str, hits: list[Match]) -> bool:
    """Return whether a traceback is the consequence of a failure elsewhere, judged by the matches in its message."""
    if CONSEQUENCE.search(traceback.exception):
        return True
    kinds = [
        hit.event.kind
        for hit in hits
        if any(place == origin and line in message for place, line in hit.lines)
        and not (hit.stamped and hit.event.kind == "consequence" and hit.event.line > traceback.last_line)
    ]
    if "error" in kinds or (is_own_fault(traceback.exception) and traceback.in_script):
        return False
    return "consequence" in kinds or bool(CONSEQUENCE.search(traceback.message))


def _attempt(
    number: int,
    writer_lines: dict[Writer, list[tuple[TimelineEvent, TimelineEvent]]],
    events: dict[Writer, list[TimelineEvent]],
    resolver: RankResolver,
    several: bool,
) -> Attempt:
    def order(event: TimelineEvent) -> tuple[float, float]:
        return (event.time_s if several and event.time_s is not None else 0.0, event.place)

    tracks: list[Track] = []
    for writer in sorted({*writer_lines, *events}, key=lambda v: (v.rank is None, v.host, v.rank or 0)):
        if not writer.known:
            continue
        own = sorted(events.get(writer, []), key=order)
        lines = [line for ends in writer_lines.get(writer, []) for line in ends] or own
        lines = sorted(lines, key=order)
        if len(own) > MOST_EVENTS:
            own = own[: MOST_EVENTS // 2] + own[-MOST_EVENTS // 2 :]
        tracks.append(Track(writer.rank, resolver.host(writer), lines[0], lines[-1], own))
    return Attempt(number, tracks, sorted(events.get(UNKNOWN_WRITER, []), key=order)[:MOST_EVENTS])
