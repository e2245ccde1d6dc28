"""Build the timeline of a case: the track of each rank by attempt.

Events that the knowledge base classifies as consequences of another failure are not failures of the rank itself.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from .exception_types import is_own_fault
from .matcher import Match
from .speakers import StepRange
from .types import UNKNOWN_SPEAKER, Attempt, Speaker, Timeline, TimelineEvent, Traceback, Track

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
    speaker_lines: dict[tuple[int, Speaker], tuple[TimelineEvent, TimelineEvent]]
    mapped: dict[tuple[str, int], int]
    steps: dict[int, StepRange]
    tracebacks: list[tuple[int, Traceback, TimelineEvent]]
    last_steps: dict[tuple[int, Speaker], TimelineEvent] = msgspec.field(default_factory=dict)
    stamped: set[tuple[int, Speaker]] = msgspec.field(default_factory=set)  # speakers whose last line has a time stamp


class RankResolver:
    """Unifies the names of a rank: local ranks become global ones if the mapping is known."""

    def __init__(self, texts: Iterable[ScannedText], hits: Iterable[Match]) -> None:
        self._ranks: dict[tuple[str, int], int] = {}
        speakers = {speaker for text in texts for _, speaker in text.speaker_lines}
        largest: dict[tuple[str, int], int] = {}
        for text in texts:
            self._ranks |= text.mapped
        for hit in hits:
            speakers.add(hit.speaker)
            if hit.pattern.id == "mark:nccl-rank" and hit.speaker.host:
                key, of = (hit.speaker.host, int(hit.event.values["gpu"])), int(hit.event.values["of"])
                if of > largest.get(key, 0):
                    largest[key], self._ranks[key] = of, int(hit.event.values["rank"])
        self._hosts = {rank: host for (host, _), rank in self._ranks.items() if host}
        self._one_host = len({speaker.host for speaker in speakers if speaker.local}) <= 1
        self._global = any(speaker.rank is not None and not speaker.local for speaker in speakers)

    def resolve(self, speaker: Speaker) -> Speaker:
        """Return the speaker with its global rank.

        A local rank without a known global one becomes unknown if other speakers have global ranks.
        """
        if not speaker.local or speaker.rank is None:
            return speaker
        if (speaker.host, speaker.rank) in self._ranks:
            return Speaker(self._ranks[speaker.host, speaker.rank])
        if self._one_host:
            return Speaker(speaker.rank)
        return UNKNOWN_SPEAKER if self._global else speaker

    def host(self, speaker: Speaker) -> str:
        """Return the host of a speaker, or ""."""
        return speaker.host or self._hosts.get(speaker.rank if speaker.rank is not None else -1, "")


def build_timeline(texts: list[ScannedText], hits: list[Match]) -> Timeline | None:
    """Build the timeline of all texts, or None if there is nothing in them."""
    resolver = RankResolver(texts, hits)
    speaker_lines: dict[tuple[int, Speaker], list[tuple[TimelineEvent, TimelineEvent]]] = defaultdict(list)
    events: dict[tuple[int, Speaker], list[TimelineEvent]] = defaultdict(list)
    for text in texts:
        for (attempt, speaker), ends in text.speaker_lines.items():
            speaker_lines[attempt, resolver.resolve(speaker)].append(ends)
        for attempt, steps in text.steps.items():
            found = [steps.first, steps.last] if steps.first is not steps.last else [steps.first]
            events[attempt, UNKNOWN_SPEAKER] += [event for event in found if event]
    by_speaker: dict[Speaker, list[Match]] = defaultdict(list)
    for hit in hits:
        by_speaker[hit.speaker].append(hit)
    echoes: dict[tuple[str, Speaker], list[Traceback]] = defaultdict(list)
    for text in texts:
        for attempt, traceback, event, until in _with_message_end(text):
            message = range(traceback.message_line, until)
            if _is_consequence(traceback, message, text.origin, by_speaker[traceback.speaker]):
                echoes[text.origin, traceback.speaker].append(traceback)
                event = msgspec.structs.replace(event, kind="consequence")
            events[attempt, resolver.resolve(traceback.speaker)].append(event)
    for hit in hits:
        event = msgspec.structs.replace(hit.event, count=hit.count)
        tracebacks = echoes.get((event.where.rpartition(":")[0], hit.speaker), [])
        if event.kind == "error" and any(t.first_line <= event.line <= t.last_line for t in tracebacks):
            event = msgspec.structs.replace(event, kind="note")
        events[hit.attempt, _speaker_of(hit, resolver)].append(event)
    several = len([text for text in texts if text.speaker_lines]) > 1
    parts: dict[int, set[Speaker]] = defaultdict(set)
    for number, speaker in (*speaker_lines, *events):
        parts[number].add(speaker)
    attempts = [
        _attempt(
            number,
            {speaker: speaker_lines[number, speaker] for speaker in speakers},
            {speaker: events[number, speaker] for speaker in speakers},
            resolver,
            several,
        )
        for number, speakers in sorted(parts.items())
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


def _speaker_of(hit: Match, resolver: RankResolver) -> Speaker:
    """Return the speaker to whose track a match belongs: a launcher's report on a rank belongs to that rank."""
    values = hit.event.values
    if hit.event.kind in ("exit", "summary"):
        if "rank" in values:
            return Speaker(int(values["rank"]))
        if "local" in values:
            return resolver.resolve(Speaker(int(values["local"]), hit.speaker.host, local=True))
    return resolver.resolve(hit.speaker)


def _with_message_end(text: ScannedText) -> Iterator[tuple[int, Traceback, TimelineEvent, int]]:
    """Yield each traceback with the line at which its message ends: before the next one of the same speaker."""
    following: dict[Speaker, int] = {}
    for attempt, traceback, event in reversed(text.tracebacks):
        until = traceback.last_line + LINES_AFTER
        yield attempt, traceback, event, min(until, following.get(traceback.speaker, until))
        following[traceback.speaker] = traceback.first_line


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
    speaker_lines: dict[Speaker, list[tuple[TimelineEvent, TimelineEvent]]],
    events: dict[Speaker, list[TimelineEvent]],
    resolver: RankResolver,
    several: bool,
) -> Attempt:
    def order(event: TimelineEvent) -> tuple[float, float]:
        return (event.time_s if several and event.time_s is not None else 0.0, event.place)

    tracks: list[Track] = []
    for speaker in sorted({*speaker_lines, *events}, key=lambda v: (v.rank is None, v.host, v.rank or 0)):
        if not speaker.known:
            continue
        own = sorted(events.get(speaker, []), key=order)
        lines = [line for ends in speaker_lines.get(speaker, []) for line in ends] or own
        lines = sorted(lines, key=order)
        if len(own) > MOST_EVENTS:
            own = own[: MOST_EVENTS // 2] + own[-MOST_EVENTS // 2 :]
        tracks.append(Track(speaker.rank, resolver.host(speaker), lines[0], lines[-1], own))
    return Attempt(number, tracks, sorted(events.get(UNKNOWN_SPEAKER, []), key=order)[:MOST_EVENTS])
