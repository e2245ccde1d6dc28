"""The timeline of a case: each rank's track by attempt, and the rank that first showed something of its own.

What only follows from something else (the knowledge base says which lines do) is no cause: the culprit is the rank of
the first event that is not of that kind.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from .matcher import Match
from .speakers import StepRange
from .types import UNKNOWN_SPEAKER, Attempt, Speaker, Timeline, TimelineEvent, Traceback, Track

MOST_EVENTS = 200  # of one track, half from its start, half from its end
FOLLOWING = (
    "ChildFailedError|SignalException|KeyboardInterrupt|CalledProcessError|ProcessExitedException|SystemExit|"
    "ProcessRaisedException|RayTaskError|BrokenPipeError|ConnectionResetError|EOFError"
)
FOLLOWS = re.compile(
    rf"(?:{FOLLOWING})$|Connection (?:closed|reset)|Broken pipe|[Ss]ocket [Tt]imeout|ncclRemoteError|"
    r"remote process exited|[Tt]imed out waiting|wait timeout after|SIGTERM|store has been closed"
)
LINES_AFTER = 7  # of a traceback, in which its message may go on
DIGITS = re.compile(r"0x[0-9a-f]+|\d+")
AGENTS = (-15, 143)  # ended by the launcher: not what happened first


class ScannedText(msgspec.Struct):
    """What was gathered from one text."""

    origin: str
    spoken: dict[tuple[int, Speaker], tuple[TimelineEvent, TimelineEvent]]
    mapped: dict[tuple[str, int], int]
    steps: dict[int, StepRange]
    tracebacks: list[tuple[int, Traceback, TimelineEvent]]
    last_steps: dict[tuple[int, Speaker], TimelineEvent] = msgspec.field(default_factory=dict)
    stamped: set[tuple[int, Speaker]] = msgspec.field(default_factory=set)  # whose last line has a time of its own


class RankResolver:
    """Makes one of the several names a rank has: local ones become global where that is known."""

    def __init__(self, texts: Iterable[ScannedText], hits: Iterable[Match]) -> None:
        self._ranks: dict[tuple[str, int], int] = {}
        voices = {voice for text in texts for _, voice in text.spoken}
        largest: dict[tuple[str, int], int] = {}
        for text in texts:
            self._ranks |= text.mapped
        for hit in hits:
            voices.add(hit.voice)
            if hit.needle.id == "mark:nccl-rank" and hit.voice.host:
                key, of = (hit.voice.host, int(hit.event.values["gpu"])), int(hit.event.values["of"])
                if of > largest.get(key, 0):
                    largest[key], self._ranks[key] = of, int(hit.event.values["rank"])
        self._hosts = {rank: host for (host, _), rank in self._ranks.items() if host}
        self._one_host = len({voice.host for voice in voices if voice.local}) <= 1
        self._global = any(voice.rank is not None and not voice.local for voice in voices)

    def voice(self, voice: Speaker) -> Speaker:
        """The voice by its global rank; one whose rank is not known beside ranks that are, by its host alone."""
        if not voice.local or voice.rank is None:
            return voice
        if (voice.host, voice.rank) in self._ranks:
            return Speaker(self._ranks[voice.host, voice.rank])
        if self._one_host:
            return Speaker(voice.rank)
        return UNKNOWN_SPEAKER if self._global else voice

    def host(self, voice: Speaker) -> str:
        """The host a voice is on, as far as known."""
        return voice.host or self._hosts.get(voice.rank if voice.rank is not None else -1, "")


def build_timeline(texts: list[ScannedText], hits: list[Match]) -> Timeline | None:
    """The timeline of everything gathered; None where there was nothing at all."""
    resolver = RankResolver(texts, hits)
    spoken: dict[tuple[int, Speaker], list[tuple[TimelineEvent, TimelineEvent]]] = defaultdict(list)
    events: dict[tuple[int, Speaker], list[TimelineEvent]] = defaultdict(list)
    for text in texts:
        for (attempt, voice), said in text.spoken.items():
            spoken[attempt, resolver.voice(voice)].append(said)
        for attempt, steps in text.steps.items():
            found = [steps.first, steps.last] if steps.first is not steps.last else [steps.first]
            events[attempt, UNKNOWN_SPEAKER] += [event for event in found if event]
    by_voice: dict[Speaker, list[Match]] = defaultdict(list)
    for hit in hits:
        by_voice[hit.voice].append(hit)
    echoes: dict[tuple[str, Speaker], list[Traceback]] = defaultdict(list)
    for text in texts:
        for attempt, traceback, event, until in _until_next(text):
            message = range(traceback.said_line, until)
            if _follows(traceback, message, text.origin, by_voice[traceback.voice]):
                echoes[text.origin, traceback.voice].append(traceback)
                event = msgspec.structs.replace(event, kind="consequence")
            events[attempt, resolver.voice(traceback.voice)].append(event)
    for hit in hits:
        event = msgspec.structs.replace(hit.event, count=hit.count)
        told = echoes.get((event.where.rpartition(":")[0], hit.voice), [])
        if event.kind == "error" and any(t.first_line <= event.line <= t.last_line for t in told):
            event = msgspec.structs.replace(event, kind="note")
        events[hit.attempt, _about(hit, resolver)].append(event)
    several = len([text for text in texts if text.spoken]) > 1
    parts: dict[int, set[Speaker]] = defaultdict(set)
    for number, voice in (*spoken, *events):
        parts[number].add(voice)
    attempts = [
        _attempt(
            number,
            {voice: spoken[number, voice] for voice in voices},
            {voice: events[number, voice] for voice in voices},
            resolver,
            several,
        )
        for number, voices in sorted(parts.items())
    ]
    if not attempts:
        return None
    ordered = not several or all(
        event.time_s is not None for attempt in attempts for track in attempt.tracks for event in own_failures(track)
    )
    return Timeline(attempts, ordered=ordered)


def own_failures(track: Track) -> list[TimelineEvent]:
    """The errors of a track that are its own; what a time-out's own line says is none."""
    waited = {event.where for event in track.events if event.id == "mark:watchdog"}
    return [event for event in track.events if event.kind == "error" and event.where not in waited]


def normalise_message(message: str) -> str:
    """A message without its numbers, so that the same one of several ranks is alike."""
    return DIGITS.sub("#", message)[:120]


def _about(hit: Match, resolver: RankResolver) -> Speaker:
    """Whose track a hit belongs to: the launcher's words about a rank are that rank's."""
    values = hit.event.values
    if hit.event.kind in ("exit", "summary"):
        if "rank" in values:
            return Speaker(int(values["rank"]))
        if "local" in values:
            return resolver.voice(Speaker(int(values["local"]), hit.voice.host, local=True))
    return resolver.voice(hit.voice)


def _until_next(text: ScannedText) -> Iterator[tuple[int, Traceback, TimelineEvent, int]]:
    """Each traceback with the line up to which its message may go: at most to the same voice's next one."""
    following: dict[Speaker, int] = {}
    for attempt, traceback, event in reversed(text.tracebacks):
        until = traceback.last_line + LINES_AFTER
        yield attempt, traceback, event, min(until, following.get(traceback.voice, until))
        following[traceback.voice] = traceback.first_line


def _follows(traceback: Traceback, message: range, origin: str, hits: list[Match]) -> bool:
    """Whether a traceback only tells what happened elsewhere, by what the same voice's hits in its message say."""
    if FOLLOWS.search(traceback.exception):
        return True
    said = [
        hit.event.kind
        for hit in hits
        if any(place == origin and line in message for place, line in hit.lines)
        and not (hit.stamped and hit.event.kind == "consequence" and hit.event.line > traceback.last_line)
    ]
    return "error" not in said and ("consequence" in said or bool(FOLLOWS.search(traceback.message)))


def _attempt(
    number: int,
    spoken: dict[Speaker, list[tuple[TimelineEvent, TimelineEvent]]],
    events: dict[Speaker, list[TimelineEvent]],
    resolver: RankResolver,
    several: bool,
) -> Attempt:
    def order(event: TimelineEvent) -> tuple[float, float]:
        return (event.time_s if several and event.time_s is not None else 0.0, event.place)

    tracks: list[Track] = []
    for voice in sorted({*spoken, *events}, key=lambda v: (v.rank is None, v.host, v.rank or 0)):
        if not voice.known:
            continue
        own = sorted(events.get(voice, []), key=order)
        lines = [line for said in spoken.get(voice, []) for line in said] or own
        lines = sorted(lines, key=order)
        if len(own) > MOST_EVENTS:
            own = own[: MOST_EVENTS // 2] + own[-MOST_EVENTS // 2 :]
        tracks.append(Track(voice.rank, resolver.host(voice), lines[0], lines[-1], own))
    return Attempt(number, tracks, sorted(events.get(UNKNOWN_SPEAKER, []), key=order)[:MOST_EVENTS])
