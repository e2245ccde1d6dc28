"""Judge a hang or a crash from the logs alone: a pure function of the log events. Unknowns are left out."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from .. import phrases
from ..types import JobLog, LogEvent, Observation, Verdict
from .patterns import STAGES
from .per_rank import (
    NOTICED,
    call_text,
    collective_of_rank,
    death_event,
    death_text,
    ended_by_own_failure,
    is_alive,
    known_world_size,
    user_line,
)

ABORTS = (-6, 134)  # exit codes of a rank that noticed the failure of another one
TIED = 0.45
STAGE_NAMES = {
    "bootstrap": "the choice of the network interface",
    "start": "the start",
    "topology": "the layout of the trees",
    "rings": "the connection of the rings",
    "trees": "the connection of the trees",
    "complete": "the end",
}


def verdict_from_log(observed: Observation) -> Verdict | None:
    """Return the verdict on the ranks that differ from the others, or None if the log does not show any.

    The rules are tried in order: explicit reports of torch come before conclusions from numbers and silence.
    """
    log = observed.log
    if log is None or not (log.facts or log.ranks):
        return None
    return next((verdict for rule in RULES if (verdict := rule(log, observed))), None)


def _mismatch(log: JobLog, observed: Observation) -> Verdict | None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL compares the calls of the ranks: the first sequence number with a difference."""
    reports = log.of("mismatch")
    if not reports:
        return None
    first = min(int(event.values.get("seq", "0")) for event in reports)
    ran: dict[int, tuple[str, str, str]] = {}
    for event in reports:
        if int(event.values.get("seq", "0")) != first:
            continue
        for whose, prefix in (("one", ""), ("other", "other_")):
            values = [event.values.get(prefix + name, "") for name in ("op", "shape", "dtype")]
            ran[int(event.values[whose])] = (values[0], f"[{values[1]}]" if values[1] else "", values[2])
    groups, tied = _minority(ran)
    culprits = sorted(ran) if tied else sorted(rank for group in groups[1:] for rank in group)
    parts = [f"{phrases.ranks_phrase(group, 'call')} {call_text(*ran[group[0]])}" for group in reversed(groups[:4])]
    text = f"torch compared the ranks before collective {first}: {_joined_sentence(parts)}."
    findings = ["job.ranks-in-different-collectives", "job.log-names-mismatch"]
    return _verdict(log, observed, "collective-desync", culprits, text, TIED if tied else 0.9, findings)


def _size(log: JobLog, observed: Observation) -> Verdict | None:
    """gloo aborts a rank that receives more bytes than it expects; it does not report which rank was wrong."""
    reports = log.of("size")
    if not reports:
        return None
    event = reports[0]
    who = f"Rank {event.rank}" if event.rank is not None else "A rank"
    text = f"{who} received {event.values['got']} bytes but expected {event.values['expected']}."
    culprits = [0, 1] if known_world_size(log, observed) == 2 else []
    return _verdict(log, observed, "collective-desync", culprits, text, 0.4, ["job.ranks-in-different-collectives"])


def _absent(log: JobLog, observed: Observation) -> Verdict | None:
    """monitored_barrier (and DETAIL, which uses it) reports the ranks that did not arrive."""
    reports = log.of("absent")
    if not reports:
        return None
    longest = max(reports, key=lambda event: len(event.values["absent"]))
    absent = sorted({int(rank) for rank in longest.values["absent"].split(",")})
    seconds = int(longest.values["timeout_ms"]) / 1000
    text = f"{phrases.ranks_phrase(absent, 'have')} not reached the monitored barrier within {seconds:g} s."
    findings = ["job.log-names-absent"]
    dead = [rank for rank in absent if death_event(log, rank) and not is_alive(observed, rank)]
    if dead:
        text += f" {death_text(log, dead[0])}"
        return _verdict(log, observed, "rank-died-survivors-wait", absent, text, 0.9, [*findings, "job.rank-dead"])
    return _verdict(log, observed, None, absent, text, 0.85, findings, waiting=longest.rank)


def _died(log: JobLog, observed: Observation) -> Verdict | None:
    """The first rank that failed or was killed, while others continued or only noticed its failure."""
    if known_world_size(log, observed) < 2:
        return None
    rank = _first_dead(log, observed)
    if rank is None or is_alive(observed, rank):
        return None
    others = sorted({event.rank for event in log.of(*NOTICED) if event.rank is not None and event.rank != rank})
    text = death_text(log, rank)
    if others:
        text += f" {phrases.ranks_phrase(others, 'wait')} for it or lost its connection."
    own_failure = any(event.rank == rank for event in log.of("traceback")) or any(
        int(event.values.get("code", "1")) < 0 for event in log.of("exit", "root-cause") if event.rank == rank
    )
    confidence = 0.85 if own_failure else 0.5  # the first to exit may only have noticed another failure
    return _verdict(log, observed, "rank-died-survivors-wait", [rank], text, confidence, ["job.rank-dead"])


def _first_dead(log: JobLog, observed: Observation) -> int | None:
    if log.first is not None and death_event(log, log.first):
        return log.first
    ended = [event for event in log.of("root-cause", "exit") if ended_by_own_failure(event) and event.rank is not None]
    noticed = {event.rank for event in log.of(*NOTICED)}
    failed = [event for event in log.of("traceback") if event.rank is not None and "follows" not in event.values]
    if len({event.rank for event in failed}) > 1:
        return None  # several failed: the first one is not known
    own = {
        event.rank for event in ended if int(event.values.get("code", "1")) not in ABORTS and event.rank not in noticed
    }
    if not own and observed.seen:
        own = {event.rank for event in failed if event.rank is not None and not is_alive(observed, event.rank)}
    return own.pop() if len(own) == 1 else None


def _operations(log: JobLog, observed: Observation) -> Verdict | None:
    """Watchdogs of one group report different operations under the same sequence number."""
    by_work: dict[tuple[str, int], dict[int, tuple[str, str, str]]] = defaultdict(dict)
    for event in log.of("watchdog"):
        if event.rank is not None and "seq" in event.values:
            elements = event.values.get("numel_in", "") if event.values["op"].startswith("ALLREDUCE") else ""
            call = (event.values["op"], f"{elements} elements" if elements else "", "")
            by_work[_group_of(log, event), int(event.values["seq"])].setdefault(event.rank, call)
    for (group, number), ran in sorted(by_work.items(), key=lambda item: item[0][1]):
        if len(set(ran.values())) < 2:
            continue
        groups, tied = _minority(ran)
        culprits = sorted(ran) if tied else sorted(rank for group in groups[1:] for rank in group)
        parts = [f"{phrases.ranks_phrase(group, 'call')} {call_text(*ran[group[0]])}" for group in reversed(groups[:4])]
        text = f"Collective {number}{_of_group(group)}: {phrases.mid_sentence(_joined_sentence(parts))}."
        confidence = TIED if tied else 0.85 if group else 0.6
        findings = ["job.ranks-in-different-collectives"]
        return _verdict(log, observed, "collective-desync", culprits, text, confidence, findings)
    return None


def _desync_report(log: JobLog, observed: Observation) -> Verdict | None:
    """TORCH_NCCL_DESYNC_DEBUG reports the ranks that are behind all others."""
    reports = log.of("desync")
    if not reports:
        return None
    values = reports[0].values
    named = ", ".join(values[name] for name in ("never", "started", "ended") if name in values)
    behind = sorted({int(rank) for rank in named.split(",") if rank})
    if not behind or len(behind) >= known_world_size(log, observed):
        return None
    text = f"torch's own report at the time-out lists {phrases.mid_sentence(phrases.ranks_phrase(behind))}: "
    if "never" in values:
        text += "it has not entered any collective yet."
    elif "last" in values:
        text += f"its last collective is number {values['last']}; the others have continued."
    else:
        text += f"it is still in collective number {values['seq']}; the others have continued."
    return _verdict(log, observed, None, behind, text, 0.8, ["job.log-rank-behind"], waiting=reports[0].rank)


def _ranks_without_call(log: JobLog, observed: Observation) -> Verdict | None:
    """Ranks that never enqueued the collective in which the others wait.

    The GPU runs behind the process: a rank that has enqueued more is not suspicious.
    """
    by_group: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for event in log.of("work"):
        if event.rank is not None:
            work = (int(event.values["enqueued"]), int(event.values["completed"]))
            by_group[_group(event)][event.rank] = max(work, by_group[_group(event)].get(event.rank, work))
    for event in log.of("watchdog"):
        if event.rank is not None and "seq" in event.values:
            number = int(event.values["seq"])
            by_group[_group_of(log, event)].setdefault(event.rank, (number, number - 1))
    for group, works in by_group.items():
        waited = [max(completed, 0) + 1 for enqueued, completed in works.values() if enqueued > completed]
        if not waited:
            continue
        number = max(waited, key=lambda each: (waited.count(each), each))
        behind = sorted(rank for rank, (enqueued, _) in works.items() if enqueued < number)
        waiting = sorted(set(works) - set(behind))
        if behind and waiting:
            operation = next((op for rank in waiting if (op := collective_of_rank(log, rank))), "a collective")
            text = (
                f"{phrases.ranks_phrase(waiting, 'wait')} in {operation} (number {number}{_of_group(group)}). "
                f"{phrases.ranks_phrase(behind, 'have')} not called it: their last one is number {works[behind[0]][0]}."
            )
            return _verdict(log, observed, None, behind, text, 0.8, ["job.log-rank-behind"], waiting=waiting[0])
    return None


def _at_init(log: JobLog, observed: Observation) -> Verdict | None:
    """NCCL initialisation (NCCL_DEBUG=INFO) that is further on some ranks than on others."""
    stages: dict[int, int] = {}
    for event in log.of("nccl-init"):
        if event.rank is not None:
            stage = next(index for index, name in enumerate(STAGES) if name in event.values)
            stages[event.rank] = max(stage, stages.get(event.rank, 0))
    if not stages:
        return None
    world = set(range(known_world_size(log, observed)))
    complete = STAGES.index("complete")
    further = all(stage == complete for stage in stages.values())
    waiting = _in_later_init(log, len(world)) if further else set(stages)
    absent = sorted(world - waiting)
    if further and not waiting:
        return None
    findings = ["job.waiting-at-init", "job.log-init-stopped"]
    if absent and not log.whole:
        return None
    if absent:
        lives = further or any(
            is_alive(observed, rank) or any(row.rank == rank for row in log.ranks) for rank in absent
        )
        text = (
            f"{phrases.ranks_phrase(sorted(waiting), 'wait')} in NCCL's initialisation for "
            f"{phrases.mid_sentence(phrases.ranks_phrase(absent))}, "
            "which logged nothing about it."
        )
        cause = None if lives else "ranks-missing-at-init"
        findings += [] if lives else ["job.rank-missing"]
        return _verdict(log, observed, cause, absent, text, 0.75, findings)
    first = min(stages.values())
    stopped = sorted(rank for rank, stage in stages.items() if stage == first)
    if len(stopped) == len(stages):
        return None
    others = sorted(set(stages) - set(stopped))
    text = (
        f"NCCL's initialisation stopped first on {phrases.mid_sentence(phrases.ranks_phrase(stopped))}, after "
        f"{STAGE_NAMES[STAGES[first]]}; {phrases.mid_sentence(phrases.ranks_phrase(others, 'have'))} gone further."
    )
    confidence = 0.6 if 2 * len(stopped) < len(stages) else TIED
    return _verdict(log, observed, None, stopped, text, confidence, findings)


def _in_later_init(log: JobLog, size: int) -> set[int]:
    """Return the ranks that have started, but not completed, a later communicator of all ranks."""
    begun: dict[str, set[int]] = defaultdict(set)
    ended: set[str] = set()
    for event in log.of("nccl-init"):
        if event.values.get("of") == str(size) and event.rank is not None:
            communicator = event.values.get("comm") or event.values.get("color", "")
            if "start" in event.values:
                begun[communicator].add(event.rank)
            else:
                ended.add(communicator)
    return next((ranks for communicator, ranks in begun.items() if communicator not in ended), set())


def _silent(log: JobLog, observed: Observation) -> Verdict | None:
    """Most ranks report a time-out or a lost peer; the log has no such line of the others."""
    lost = {event.rank for event in log.of("peer-closed", "nccl-error") if event.rank is not None}
    noticed = {event.rank for event in log.of("watchdog", "gloo-timeout") if event.rank is not None} | lost
    for event in log.of("work"):
        if event.rank is not None and int(event.values["enqueued"]) > int(event.values["completed"]):
            noticed.add(event.rank)
    silent = sorted(set(range(known_world_size(log, observed))) - noticed)
    if not log.whole or len(noticed) < 2 or not silent or len(silent) > len(noticed):
        return None
    waited = next((name for rank in sorted(noticed) if (name := collective_of_rank(log, rank))), "a collective")
    one_died = bool(lost) and not any(is_alive(observed, rank) for rank in silent)
    what = "lost the connection to a peer" if lost else "timed out"
    others = phrases.mid_sentence(phrases.ranks_phrase(silent))
    text = f"{phrases.ranks_phrase(sorted(noticed))} {what} in {waited}; {others} logged nothing about it."
    cause, findings = ("rank-died-survivors-wait", ["job.rank-dead"]) if one_died else (None, ["job.log-rank-behind"])
    confidence = 0.65 if one_died or not lost else 0.4
    return _verdict(log, observed, cause, silent, text, confidence, findings, waiting=min(noticed))


def _together(log: JobLog, observed: Observation) -> Verdict | None:
    """Every rank timed out in the same collective."""
    waited = {
        event.rank: (event.values["op"], event.values.get("seq", ""))
        for event in log.of("watchdog")
        if event.rank is not None
    }
    if len(waited) < 2 or len(waited) < known_world_size(log, observed) or len(set(waited.values())) > 1:
        return None
    number = next(iter(waited.values()))[1]
    text = f"Every rank timed out in {collective_of_rank(log, 0)}{f' (number {number})' if number else ''}. "
    text += "The ranks agree, so look at the network and the GPUs between them next."
    return _verdict(log, observed, None, [], text, 0.5, ["job.same-collective"], waiting=0)


RULES: tuple[Callable[[JobLog, Observation], Verdict | None], ...] = (
    _mismatch,
    _size,
    _absent,
    _died,
    _operations,
    _desync_report,
    _ranks_without_call,
    _at_init,
    _silent,
    _together,
)


def _minority(ran: dict[int, tuple[str, str, str]]) -> tuple[list[list[int]], bool]:
    """Group the ranks by call, the largest group first; also return True if there is no majority."""
    by_call: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for rank in sorted(ran):
        by_call[ran[rank]].append(rank)
    groups = sorted(by_call.values(), key=lambda group: (-len(group), group[0]))
    sizes = Counter(len(group) for group in groups)
    return groups, sizes[len(groups[0])] > 1


def _joined_sentence(parts: Sequence[str]) -> str:
    return "; ".join([parts[0], *(phrases.mid_sentence(part) for part in parts[1:])])


def _group(event: LogEvent) -> str:
    return event.values.get("group") or event.values.get("pg") or ""


def _group_of(log: JobLog, watchdog: LogEvent) -> str:
    """Return the group of a watchdog message. Since torch 2.4 only the next line of the same rank has it."""
    number = watchdog.values.get("seq")
    others = [event for event in log.of("work") if event.rank == watchdog.rank and event.values.get("seq") == number]
    return _group(watchdog) or next((_group(event) for event in others), "")


def _of_group(group: str) -> str:
    return f" of group {group}" if group not in ("", "0") else ""


def _verdict(
    log: JobLog,
    observed: Observation,
    cause: str | None,
    culprits: Sequence[int],
    why: str,
    confidence: float,
    findings: Sequence[str],
    waiting: int | None = None,
) -> Verdict:
    """Build a verdict: ``where`` is the line of the first culprit, the collective its own or that of ``waiting``."""
    everybody = range(known_world_size(log, observed))
    failed = {event.rank for event in log.of("traceback")}
    ended = bool(log.of("exit", "root-cause")) or failed.issuperset(everybody)
    candidates = [*culprits[:1], *([waiting] if waiting is not None else [])]
    return Verdict(
        state="dead" if ended and not any(is_alive(observed, rank) for rank in everybody) else "hung",
        cause=cause,
        culprits=sorted(culprits),
        collective=next((name for rank in candidates if (name := collective_of_rank(log, rank))), None),
        where=user_line(log, culprits[0]) if culprits else None,
        branch=None,
        why=why,
        confidence=confidence,
        findings=list(findings),
    )
