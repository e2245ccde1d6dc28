"""Derive the findings ``log.…`` from a timeline. Pure: a timeline in, evidence out.

Findings that compare ranks need at least two distinguishable tracks.
"""

from collections.abc import Iterator
from itertools import pairwise

from ..evidence import STOPPED, Evidence
from ..text.units import percent_text, seconds_text
from .first_failure import awaited_collective, common_error, earliest, timed_out_collectives
from .launcher_stop import stop_findings
from .out_of_memory import out_of_memory_findings
from .script_error import script_error_findings
from .timeline import all_events, own_failures
from .types import Attempt, Timeline, TimelineEvent, Track

SILENT_SHARE = 0.25  # of the text, without a line of the silent rank …
SILENT_S = 60.0  # … or this long if there are time stamps
SILENT_TIMES = 5.0  # relative to the spread of the others' last lines
SIGKILL = (-9, 137)
SIGNALS = {-11: "SIGSEGV", 139: "SIGSEGV", -7: "SIGBUS", 135: "SIGBUS", -6: "SIGABRT", 134: "SIGABRT"}
NAMES = {"SIGKILL": -9, "Killed": -9, "SIGSEGV": -11, "Segmentation": -11, "SIGBUS": -7, "Bus": -7, "SIGABRT": -6}
VERSIONS = {"mark:nccl-version": "NCCL", "mark:torch-version": "torch", "mark:driver-version": "the CUDA driver"}


def findings_of(timeline: Timeline) -> list[Evidence]:
    """Return every finding of the timeline once, at its first occurrence."""
    found: dict[str, Evidence] = {}
    for attempt in timeline.attempts:
        for rule in (
            _failures,
            stop_findings,
            _peers_ended_first,
            _silent_rank,
            _collectives,
            _ranks_never_joined,
            _more_joined,
            _signals,
            out_of_memory_findings,
            _not_finite,
            _hosts,
            _versions,
        ):
            for evidence in rule(attempt):
                found.setdefault(evidence.id, evidence)
    for evidence in (*_restarts(timeline), *script_error_findings(timeline), *_node_of_first_failure(timeline)):
        found.setdefault(evidence.id, evidence)
    if any(all_failures(attempt) for attempt in timeline.attempts) or "log.ranks-disagree-on-collective" in found:
        found.pop("log.only-consequences", None)
    if STOPPED in found:
        found.pop("log.only-consequences", None)
    return list(found.values())


def make_finding(name: str, what: str, event: TimelineEvent, track: Track | None = None) -> Evidence:
    """Build the evidence of a finding at the line of an event."""
    return Evidence(
        f"log.{name}",
        "log",
        what,
        where=event.where,
        rank=track.rank if track else None,
        host=track.host if track else "",
    )


def all_failures(attempt: Attempt) -> list[TimelineEvent]:
    """Return all errors of an attempt, of any writer."""
    shared = [event for event in attempt.shared if event.kind == "error"]
    return shared + [event for track in attempt.tracks for event in own_failures(track)]


def _consequences(events: list[TimelineEvent]) -> list[TimelineEvent]:
    return [event for event in events if event.kind == "consequence"]


def _failures(attempt: Attempt) -> Iterator[Evidence]:
    tracks = attempt.tracks
    erring = [track for track in tracks if own_failures(track)]
    echoes = [event for track in tracks if not own_failures(track) for event in _consequences(track.events)]
    ended = [event for event in attempt.shared if event.kind in ("consequence", "exit", "summary", "restart")]
    if len(tracks) >= 2 and len(erring) == 1 and (echoes or ended):
        event = own_failures(erring[0])[0]
        others = f"the other {len(tracks) - 1} ranks show" if len(tracks) > 2 else "the other rank shows"
        what = f"{erring[0].name} failed first: {event.text}; {others} only consequences"
        yield make_finding("one-rank-failed-first", what, event, erring[0])
    if same := common_error(tracks):
        who = "both ranks" if len(tracks) == 2 else f"all {len(tracks)} ranks"
        yield make_finding("all-ranks-failed-alike", f"{who} show the same error: {same[0].text}", same[0])
    if not all_failures(attempt):
        every = _consequences([*(event for track in tracks for event in track.events), *attempt.shared])
        lost = [event for event in every if event.id != "mark:joined" and not event.id.startswith("log:")]
        if lost:
            yield make_finding("only-consequences", f"only consequences of another failure: {lost[0].text}", lost[0])


def _not_finite(attempt: Attempt) -> Iterator[Evidence]:
    """Find the first printed loss, or norm of the gradients, that is no number."""
    printed = [(track, event) for track, event in all_events(attempt) if event.id == "mark:not-finite"]
    if not printed:
        return
    track, event = min(printed, key=lambda each: each[1].place)
    who = f"{track.name} prints first" if track and len(attempt.tracks) > 1 else "the log has"
    yield make_finding("not-finite", f"{who} that {event.values['what']} is NaN: {event.text}", event, track)


def _peers_ended_first(attempt: Attempt) -> Iterator[Evidence]:
    """Find that the rank which torchrun names only lost the others, and that these had ended without an error.

    torchrun ends the ranks that are alive after a failure, and says so for each. Without such a line and without an
    exit code of theirs, they had ended before.
    """
    summary = next((event for _, event in all_events(attempt) if event.id == "mark:summary"), None)
    if summary is None or int(summary.values["code"]) <= 0:
        return
    failed = [track for track in attempt.tracks if track.rank == int(summary.values["rank"])]
    others = [track for track in attempt.tracks if track.rank is not None and track not in failed]
    ended = [event.kind in ("error", "consequence", "exit") for track in others for event in track.events]
    stopped = any(event.id == "mark:stopped" for _, event in all_events(attempt))
    lost = _consequences(failed[0].events) if failed and not own_failures(failed[0]) else []
    if lost and others and not any(ended) and not stopped:
        who = "the other rank" if len(others) == 1 else f"the other {len(others)} ranks"
        what = f"{who} had ended without an error while {failed[0].name} still waited"
        yield make_finding("peers-ended-first", what, lost[0], failed[0])


def _silent_rank(attempt: Attempt) -> Iterator[Evidence]:
    """Find a rank whose last line is well before those of all others."""
    tracks = [track for track in attempt.tracks if track.rank is not None]
    without_failure = [track for track in tracks if not own_failures(track)]
    if len(without_failure) < 3:
        return
    timed = all(track.last.time_s is not None for track in tracks)

    def last(track: Track) -> float:
        return track.last.time_s or 0.0 if timed else track.last.place

    silent, *others = sorted(without_failure, key=last)
    start = min((t.first.time_s or 0.0) if timed else t.first.place for t in tracks)
    end, gap = last(others[-1]), last(others[0]) - last(silent)
    spread = last(others[-1]) - last(others[0])
    least = max(SILENT_S, SILENT_TIMES * spread) if timed else max(SILENT_SHARE * (end - start), SILENT_TIMES * spread)
    if gap > 0 and gap >= least and last(silent) > start:
        how = seconds_text(gap, whole=True) if timed else f"{percent_text(gap)} of the log"
        yield make_finding(
            "rank-fell-silent", f"{silent.name} wrote its last line {how} before the others", silent.last, silent
        )


def _collectives(attempt: Attempt) -> Iterator[Evidence]:
    """Compare the collectives in which ranks timed out, separately for each process group."""
    for waiting in timed_out_collectives(attempt).values():
        if len(waiting) < 2:
            continue
        awaited = {awaited_collective(event) for _, event in waiting.values()}
        track, event = min(waiting.values(), key=lambda item: int(item[1].values.get("seq", "0")))
        listed = ", ".join(sorted({f"{op} {seq}".strip() for op, seq in awaited})[:6])
        if len(awaited) > 1:
            yield make_finding(
                "ranks-disagree-on-collective", f"ranks timed out in different collectives: {listed}", event, track
            )
        elif len(waiting) == len(attempt.tracks):
            yield make_finding("same-collective-timeout", f"all {len(waiting)} ranks timed out in {listed}", event)


def _ranks_never_joined(attempt: Attempt) -> Iterator[Evidence]:
    for track, event in all_events(attempt):
        if event.id == "mark:joined" and int(event.values["joined"]) < int(event.values["of"]):
            yield make_finding("ranks-never-joined", "{joined} of {of} joined".format(**event.values), event, track)
            return


def _more_joined(attempt: Attempt) -> Iterator[Evidence]:
    for track, event in all_events(attempt):
        if event.id == "mark:counted" and int(event.values["joined"]) > int(event.values["of"]):
            what = "{joined} processes joined a group of {of}".format(**event.values)
            yield make_finding("more-joined-than-world-size", what, event, track)
            return


def _signals(attempt: Attempt) -> Iterator[Evidence]:
    any_error = bool(all_failures(attempt))
    timeouts = any("watchdog" in event.id for _, event in all_events(attempt))
    for track, event in all_events(attempt):
        if event.kind not in ("exit", "summary"):
            continue
        values = event.values
        code = int(values.get("code", NAMES.get(values.get("signal", values.get("how", "")), 0)))
        own = own_failures(track) if track and len(attempt.tracks) > 1 else any_error
        who = track.name if track else "a process"
        if code in SIGKILL and not own:
            yield make_finding(
                "killed-without-error", f"{who} was killed by SIGKILL without an error of its own", event, track
            )
        if code in SIGNALS and not (SIGNALS[code] == "SIGABRT" and (timeouts or own)):
            yield make_finding("crashed-by-signal", f"{who} was killed by {SIGNALS[code]}", event, track)


def _hosts(attempt: Attempt) -> Iterator[Evidence]:
    hosts = {track.host for track in attempt.tracks if track.host}
    erring = [track for track in attempt.tracks if own_failures(track)]
    bad = {track.host for track in erring}
    if len(hosts) >= 2 and len(bad) == 1 and "" not in bad:
        what = f"every error comes from {erring[0].host}, none from the other {len(hosts) - 1} hosts"
        yield make_finding("one-host-failed", what, own_failures(erring[0])[0], erring[0])


def _node_of_first_failure(timeline: Timeline) -> Iterator[Evidence]:
    """Find that the rank that failed first runs on the node of rank 0: ranks are numbered node by node."""
    for attempt in timeline.attempts:
        summaries = [(track, event) for track in attempt.tracks for event in track.events if event.kind == "summary"]
        if not summaries:
            continue
        track, event = earliest(summaries)  # each launcher of several nodes prints one
        if event.values.get("on_node") == event.values["rank"]:
            what = f"{track.name} failed first, on the node of rank 0 (its local rank is {event.values['rank']})"
            yield make_finding("failed-on-first-node", what, event, track)
        return


def _versions(attempt: Attempt) -> Iterator[Evidence]:
    for id_, name in VERSIONS.items():
        first_with: dict[str, tuple[Track, TimelineEvent]] = {}
        by_track: list[set[str]] = []
        for track in attempt.tracks:
            events = [event for event in track.events if event.id == id_]
            for event in events:
                first_with.setdefault(event.values["value"], (track, event))
            if events:
                by_track.append({event.values["value"] for event in events})
        if any(not _share_version(one, other) for one in by_track[:1] for other in by_track[1:]):
            listed = ", ".join(f"{track.name}: {value}" for value, (track, _) in list(first_with.items())[:4])
            track, event = list(first_with.values())[-1]
            yield make_finding("versions-differ", f"ranks have different versions of {name}: {listed}", event, track)


def _share_version(ones: set[str], others: set[str]) -> bool:
    """Return whether two ranks name a version in common. torch names that of NCCL without its build (``+cuda12.9``)."""
    return any(
        one == other or (one.partition("+")[0] == other.partition("+")[0] and ("+" in one) != ("+" in other))
        for one in ones
        for other in others
    )


def _restarts(timeline: Timeline) -> Iterator[Evidence]:
    numbers = [attempt.number for attempt in timeline.attempts]
    if len(numbers) < 2:
        return
    later = timeline.attempts[1]
    starts = [track.first for track in later.tracks] + later.shared
    if not starts:
        return
    yield make_finding("restarted", f"the job was started {len(numbers)} times in this log", starts[0])
    steps = [[e for e in attempt.shared if e.id == "mark:step"] for attempt in timeline.attempts]
    for before, after in pairwise(steps):
        if before and after and _step(after[0]) <= _step(before[0]) < _step(before[-1]):
            what = f"the steps reached “{before[-1].text[:60]}” and restarted at “{after[0].text[:60]}”"
            yield make_finding("started-over", what, after[0])
            return


def _step(event: TimelineEvent) -> tuple[int, int]:
    return int(event.values.get("epoch", "0")), int(event.values.get("step", "0"))
