"""What the logs alone say of a hang or a crash: a pure function of what was read. What cannot be told is not said."""

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

ABORTS = (-6, 134)  # how a rank ends that noticed another's failure
TIED = 0.45
STAGE_NAMES = {
    "bootstrap": "it found its network interface",
    "start": "it began",
    "topology": "it had laid out its trees",
    "rings": "its rings were connected",
    "trees": "its trees were connected",
    "complete": "it was complete",
}


def verdict_from_log(observed: Observation) -> Verdict | None:
    """Who the log says differs from the others, or None where it does not say.

    The rules are tried in order: what torch itself names comes before what is read from numbers and silence.
    """
    log = observed.log
    if log is None or not (log.facts or log.ranks):
        return None
    return next((verdict for rule in RULES if (verdict := rule(log, observed))), None)


def _mismatch(log: JobLog, observed: Observation) -> Verdict | None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL compares what the ranks run: the first number at which they differ, by rank."""
    reports = log.of("mismatch")
    if not reports:
        return None
    first = min(int(fact.values.get("seq", "0")) for fact in reports)
    ran: dict[int, tuple[str, str, str]] = {}
    for fact in reports:
        if int(fact.values.get("seq", "0")) != first:
            continue
        for whose, prefix in (("one", ""), ("other", "other_")):
            values = [fact.values.get(prefix + name, "") for name in ("op", "shape", "dtype")]
            ran[int(fact.values[whose])] = (values[0], f"[{values[1]}]" if values[1] else "", values[2])
    groups, tied = _minority(ran)
    culprits = sorted(ran) if tied else sorted(rank for group in groups[1:] for rank in group)
    parts = [f"{phrases.ranks_phrase(group, 'call')} {call_text(*ran[group[0]])}" for group in reversed(groups[:4])]
    text = f"torch compared the ranks before collective {first}: {_listed(parts)}."
    findings = ["job.ranks-in-different-collectives", "job.log-names-mismatch"]
    return _verdict(log, observed, "collective-desync", culprits, text, TIED if tied else 0.9, findings)


def _size(log: JobLog, observed: Observation) -> Verdict | None:
    """gloo aborts a rank that is sent more than it waits for; which of the ranks was wrong it does not say."""
    reports = log.of("size")
    if not reports:
        return None
    fact = reports[0]
    who = f"Rank {fact.rank}" if fact.rank is not None else "A rank"
    text = f"{who} was sent {fact.values['got']} bytes where it waited for {fact.values['expected']}."
    culprits = [0, 1] if known_world_size(log, observed) == 2 else []
    return _verdict(log, observed, "collective-desync", culprits, text, 0.4, ["job.ranks-in-different-collectives"])


def _absent(log: JobLog, observed: Observation) -> Verdict | None:
    """monitored_barrier (and DETAIL, which uses one) names who did not come."""
    reports = log.of("absent")
    if not reports:
        return None
    longest = max(reports, key=lambda fact: len(fact.values["absent"]))
    absent = sorted({int(rank) for rank in longest.values["absent"].split(",")})
    seconds = int(longest.values["timeout_ms"]) / 1000
    text = f"{phrases.ranks_phrase(absent, 'have')} not come to the monitored barrier within {seconds:g} s."
    findings = ["job.log-names-absent"]
    dead = [rank for rank in absent if death_event(log, rank) and not is_alive(observed, rank)]
    if dead:
        text += f" {death_text(log, dead[0])}"
        return _verdict(log, observed, "rank-died-survivors-wait", absent, text, 0.9, [*findings, "job.rank-dead"])
    return _verdict(log, observed, None, absent, text, 0.85, findings, waiting=longest.rank)


def _died(log: JobLog, observed: Observation) -> Verdict | None:
    """The first rank that failed or was killed, where others went on or only noticed."""
    if known_world_size(log, observed) < 2:
        return None
    rank = _first_dead(log)
    if rank is None or is_alive(observed, rank):
        return None
    others = sorted({fact.rank for fact in log.of(*NOTICED) if fact.rank is not None and fact.rank != rank})
    text = death_text(log, rank)
    if others:
        text += f" {phrases.ranks_phrase(others, 'wait')} for it or lost its connection."
    told = any(fact.rank == rank for fact in log.of("traceback")) or any(
        int(fact.values.get("code", "1")) < 0 for fact in log.of("exit", "root-cause") if fact.rank == rank
    )
    confidence = 0.85 if told else 0.5  # torchrun names whom it saw end first; that may be one who only noticed
    return _verdict(log, observed, "rank-died-survivors-wait", [rank], text, confidence, ["job.rank-dead"])


def _first_dead(log: JobLog) -> int | None:
    if log.first is not None and death_event(log, log.first):
        return log.first
    ended = [fact for fact in log.of("root-cause", "exit") if ended_by_own_failure(fact) and fact.rank is not None]
    noticed = {fact.rank for fact in log.of(*NOTICED)}
    failed = [fact for fact in log.of("traceback") if fact.rank is not None and "follows" not in fact.values]
    if len({fact.rank for fact in failed}) > 1:
        return None  # several failed, who was first is not known
    own = {fact.rank for fact in ended if int(fact.values.get("code", "1")) not in ABORTS and fact.rank not in noticed}
    return own.pop() if len(own) == 1 else None


def _operations(log: JobLog, observed: Observation) -> Verdict | None:
    """Watchdogs of one group that name other operations under the same number."""
    by_work: dict[tuple[str, int], dict[int, tuple[str, str, str]]] = defaultdict(dict)
    for fact in log.of("watchdog"):
        if fact.rank is not None and "seq" in fact.values:
            elements = fact.values.get("numel_in", "") if fact.values["op"].startswith("ALLREDUCE") else ""
            call = (fact.values["op"], f"{elements} elements" if elements else "", "")
            by_work[_group_of(log, fact), int(fact.values["seq"])].setdefault(fact.rank, call)
    for (group, number), ran in sorted(by_work.items(), key=lambda item: item[0][1]):
        if len(set(ran.values())) < 2:
            continue
        groups, tied = _minority(ran)
        culprits = sorted(ran) if tied else sorted(rank for group in groups[1:] for rank in group)
        parts = [f"{phrases.ranks_phrase(group, 'call')} {call_text(*ran[group[0]])}" for group in reversed(groups[:4])]
        text = f"As number {number}{_of_group(group)}, {phrases.mid_sentence(_listed(parts))}."
        confidence = TIED if tied else 0.85 if group else 0.6
        findings = ["job.ranks-in-different-collectives"]
        return _verdict(log, observed, "collective-desync", culprits, text, confidence, findings)
    return None


def _lagging(log: JobLog, observed: Observation) -> Verdict | None:
    """TORCH_NCCL_DESYNC_DEBUG names the ranks that are behind all others."""
    reports = log.of("desync")
    if not reports:
        return None
    values = reports[0].values
    named = ", ".join(values[name] for name in ("never", "started", "ended") if name in values)
    behind = sorted({int(rank) for rank in named.split(",") if rank})
    if not behind or len(behind) >= known_world_size(log, observed):
        return None
    text = f"torch's own report at the time-out names {phrases.mid_sentence(phrases.ranks_phrase(behind))}: "
    if "never" in values:
        text += "not in any collective yet."
    elif "last" in values:
        text += f"the last collective there is number {values['last']}, the others have gone on."
    else:
        text += f"still in collective number {values['seq']}, the others have gone on."
    return _verdict(log, observed, None, behind, text, 0.8, ["job.log-rank-behind"], waiting=reports[0].rank)


def _behind(log: JobLog, observed: Observation) -> Verdict | None:
    """Ranks that never enqueued the collective the others wait in (the GPU runs behind: enqueuing more is no sign)."""
    by_group: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for fact in log.of("work"):
        if fact.rank is not None:
            work = (int(fact.values["enqueued"]), int(fact.values["completed"]))
            by_group[_group(fact)][fact.rank] = max(work, by_group[_group(fact)].get(fact.rank, work))
    for fact in log.of("watchdog"):
        if fact.rank is not None and "seq" in fact.values:
            number = int(fact.values["seq"])
            by_group[_group_of(log, fact)].setdefault(fact.rank, (number, number - 1))
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
                f"{phrases.ranks_phrase(behind, 'have')} not called it: the last there is number {works[behind[0]][0]}."
            )
            return _verdict(log, observed, None, behind, text, 0.8, ["job.log-rank-behind"], waiting=waiting[0])
    return None


def _at_init(log: JobLog, observed: Observation) -> Verdict | None:
    """NCCL's start-up (NCCL_DEBUG=INFO) that is further on some ranks than on others."""
    stages: dict[int, int] = {}
    for fact in log.of("nccl-init"):
        if fact.rank is not None:
            stage = next(index for index, name in enumerate(STAGES) if name in fact.values)
            stages[fact.rank] = max(stage, stages.get(fact.rank, 0))
    if not stages:
        return None
    world = set(range(known_world_size(log, observed)))
    complete = STAGES.index("complete")
    further = all(stage == complete for stage in stages.values())
    waiting = _in_later_start_up(log, len(world)) if further else set(stages)
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
            f"{phrases.ranks_phrase(sorted(waiting), 'wait')} in NCCL's start-up for "
            f"{phrases.mid_sentence(phrases.ranks_phrase(absent))}, "
            "whose log has no line of it."
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
        f"NCCL's start-up stopped first on {phrases.mid_sentence(phrases.ranks_phrase(stopped))}: the "
        "last word there is that "
        f"{STAGE_NAMES[STAGES[first]]}; {phrases.mid_sentence(phrases.ranks_phrase(others, 'have'))} gone further."
    )
    confidence = 0.6 if 2 * len(stopped) < len(stages) else TIED
    return _verdict(log, observed, None, stopped, text, confidence, findings)


def _in_later_start_up(log: JobLog, size: int) -> set[int]:
    """The ranks that have begun, and not ended, the start-up of a further communicator of all ranks."""
    begun: dict[str, set[int]] = defaultdict(set)
    ended: set[str] = set()
    for fact in log.of("nccl-init"):
        if fact.values.get("of") == str(size) and fact.rank is not None:
            communicator = fact.values.get("comm") or fact.values.get("color", "")
            if "start" in fact.values:
                begun[communicator].add(fact.rank)
            else:
                ended.add(communicator)
    return next((ranks for communicator, ranks in begun.items() if communicator not in ended), set())


def _silent(log: JobLog, observed: Observation) -> Verdict | None:
    """Most ranks noticed that they waited in vain, or that a peer was gone; the others say nothing of it."""
    lost = {fact.rank for fact in log.of("peer-closed", "nccl-error") if fact.rank is not None}
    noticed = {fact.rank for fact in log.of("watchdog", "gloo-timeout") if fact.rank is not None} | lost
    for fact in log.of("work"):
        if fact.rank is not None and int(fact.values["enqueued"]) > int(fact.values["completed"]):
            noticed.add(fact.rank)
    silent = sorted(set(range(known_world_size(log, observed))) - noticed)
    if not log.whole or len(noticed) < 2 or not silent or len(silent) > len(noticed):
        return None
    waited = next((name for rank in sorted(noticed) if (name := collective_of_rank(log, rank))), "a collective")
    one_died = bool(lost) and not any(is_alive(observed, rank) for rank in silent)
    what = "lost the connection to a peer" if lost else "ran out of time"
    quiet = phrases.mid_sentence(phrases.ranks_phrase(silent, "say"))
    text = f"{phrases.ranks_phrase(sorted(noticed))} {what} in {waited}; {quiet} nothing of it."
    cause, findings = ("rank-died-survivors-wait", ["job.rank-dead"]) if one_died else (None, ["job.log-rank-behind"])
    confidence = 0.65 if one_died or not lost else 0.4
    return _verdict(log, observed, cause, silent, text, confidence, findings, waiting=min(noticed))


def _together(log: JobLog, observed: Observation) -> Verdict | None:
    """Every rank ran out of time in the same collective."""
    waited = {
        fact.rank: (fact.values["op"], fact.values.get("seq", ""))
        for fact in log.of("watchdog")
        if fact.rank is not None
    }
    if len(waited) < 2 or len(waited) < known_world_size(log, observed) or len(set(waited.values())) > 1:
        return None
    number = next(iter(waited.values()))[1]
    text = f"Every rank ran out of time in {collective_of_rank(log, 0)}{f' (number {number})' if number else ''}. "
    text += "The ranks agree, so look at the network and the GPUs between them next."
    return _verdict(log, observed, None, [], text, 0.5, ["job.same-collective"], waiting=0)


RULES: tuple[Callable[[JobLog, Observation], Verdict | None], ...] = (
    _mismatch,
    _size,
    _absent,
    _died,
    _operations,
    _lagging,
    _behind,
    _at_init,
    _silent,
    _together,
)


def _minority(ran: dict[int, tuple[str, str, str]]) -> tuple[list[list[int]], bool]:
    """Ranks that run the same together, the most first, and whether there is no majority."""
    by_call: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for rank in sorted(ran):
        by_call[ran[rank]].append(rank)
    groups = sorted(by_call.values(), key=lambda group: (-len(group), group[0]))
    sizes = Counter(len(group) for group in groups)
    return groups, sizes[len(groups[0])] > 1


def _listed(parts: Sequence[str]) -> str:
    return "; ".join([parts[0], *(phrases.mid_sentence(part) for part in parts[1:])])


def _group(fact: LogEvent) -> str:
    return fact.values.get("group") or fact.values.get("pg") or ""


def _group_of(log: JobLog, watchdog: LogEvent) -> str:
    """The group of a watchdog's message; since torch 2.4 only the line after it, of the same rank, names it."""
    number = watchdog.values.get("seq")
    others = [fact for fact in log.of("work") if fact.rank == watchdog.rank and fact.values.get("seq") == number]
    return _group(watchdog) or next((_group(fact) for fact in others), "")


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
    """``where`` is the first culprit's line; the collective its own, or that in which ``waiting`` waits."""
    everybody = range(known_world_size(log, observed))
    failed = {fact.rank for fact in log.of("traceback")}
    ended = bool(log.of("exit", "root-cause")) or failed.issuperset(everybody)
    asked = [*culprits[:1], *([waiting] if waiting is not None else [])]
    return Verdict(
        state="dead" if ended and not any(is_alive(observed, rank) for rank in everybody) else "hung",
        cause=cause,
        culprits=sorted(culprits),
        collective=next((name for rank in asked if (name := collective_of_rank(log, rank))), None),
        where=user_line(log, culprits[0]) if culprits else None,
        branch=None,
        why=why,
        confidence=confidence,
        findings=list(findings),
    )
