"""Read the logs of a job into events, each with its rank and line, and build a report from them."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

import msgspec

from ....knowledge.schema import Knowledge
from ...errors import UserError
from ...jobs.types import Job
from ...knowledge_cache import load_knowledge
from ...logs.analyse import ScanResult, scan_sources
from ...logs.first_failure import mark_first_failure
from ...logs.lines import DAYS_BEFORE
from ...logs.patterns import build_patterns
from ...logs.read import find_sources
from ...logs.timeline import RankResolver
from ...logs.types import Attempt, Timeline, TimelineEvent
from ...text.numbers import MOST_RANKS
from ..types import JobLog, JobReport, LogEvent, LogEventKind, Observation, ProcessDeath, RankLog, RankRow, Verdict
from .judge import verdict_from_log
from .patterns import KIND_OF, LOG_PATTERNS
from .per_rank import collective_of_rank, death_event, user_line

__all__ = ["JobLog", "deaths_in_log", "read_job_logs", "report_from_logs", "verdict_from_log"]

ENDS: dict[str, LogEventKind] = {"mark:exit": "exit", "mark:summary": "root-cause"}
DAY_S = 86400.0
SHOWN_CHARACTERS = 200
MOST_FACTS = 20_000
MOST_IN_ONE_TEXT = 48  # ranks and attempts; of more than that the reader keeps only some events


def read_job_logs(files: Sequence[Path], knowledge: Knowledge | None = None) -> JobLog:
    """Read the events of the job's last attempt. A directory means the files in it.

    Raises:
        UserError: A file is missing, unreadable or binary, or everything is empty.
    """
    names = find_sources([str(file) for file in files])
    found = scan_sources(names, [*build_patterns(knowledge or _builtin()), *LOG_PATTERNS])
    resolver = RankResolver(found.texts, found.hits)
    modified = {name.origin: _modified(name.path) for name in names}
    origins = [name.origin for name in names]
    if found.timeline is None or not found.timeline.attempts:
        return JobLog(files=origins, read_at=time.time())
    attempt = found.timeline.attempts[-1]
    alone = mark_first_failure(Timeline([attempt], ordered=found.timeline.ordered))
    events = _unique_ends(_log_events(attempt, modified))[:MOST_FACTS]
    sizes = [int(event.values["of"]) for event in events if event.kind == "nccl-init" and "of" in event.values]
    return JobLog(
        files=origins,
        read_at=time.time(),
        attempts=len(found.timeline.attempts),
        world_size=max(sizes, default=None),
        facts=events,
        ranks=_ranks(found, attempt, resolver, modified),
        first=alone.culprit,
        first_where=alone.culprit_where,
        whole=all(len(text.writer_lines) <= MOST_IN_ONE_TEXT for text in found.texts),
    )


@cache
def _builtin() -> Knowledge:
    return load_knowledge()


def deaths_in_log(log: JobLog) -> list[ProcessDeath]:
    """Return the deaths reported by the launcher or the kernel, without ranks that only followed another."""
    found: list[ProcessDeath] = []
    for event in log.of("exit", "killed"):
        if event.rank is not None and death_event(log, event.rank) is None:
            continue
        code = int(event.values.get("code", "1"))
        pid = int(event.values["pid"]) if "pid" in event.values else None
        how = "oom_killer" if event.kind == "killed" else "signal" if code < 0 or code > 128 else "exit"
        what = f"exitcode: {code}" if event.kind == "exit" else event.text
        found.append(ProcessDeath(pid=pid, rank=event.rank, how=how, what=what, where=event.where, at=event.at))
    return found


def report_from_logs(files: Sequence[Path]) -> JobReport:
    """Build the report of a job from its logs alone.

    Raises:
        UserError: A file is missing, unreadable or binary, everything is empty, or no rank writes to the logs.
    """
    log = read_job_logs(files)
    if not log.ranks and not log.facts:
        names = ", ".join(str(file) for file in files)
        raise UserError(f"no output of distributed ranks found in {names}", "use ddpwizard diagnose for any other text")
    known = [row.rank for row in log.ranks] + [event.rank for event in log.facts if event.rank is not None]
    world_size = min(log.world_size or max(known, default=0) + 1, MOST_RANKS)
    hosts = sorted({row.host for row in log.ranks if row.host})
    job = Job(
        launcher="torchrun" if log.of("root-cause") else "log",
        launcher_pid=None,
        launcher_command=[],
        world_size=world_size,
        master="",
        host=hosts[0] if hosts else "",
        processes=[],
    )
    observed = Observation(job=job, seen=[], log=log, deaths=deaths_in_log(log))
    verdict = verdict_from_log(observed) or _undecided(log)
    parts: dict[int | None, list[LogEvent]] = defaultdict(list)
    for event in log.facts:
        parts[event.rank].append(event)
    rows = [_row(rank, msgspec.structs.replace(log, facts=parts[rank]), job.host) for rank in range(world_size)]
    return JobReport(
        launcher=job.launcher, world_size=world_size, nodes=hosts, ranks=rows, verdict=verdict, observed=observed
    )


def _log_events(attempt: Attempt, modified: dict[str, float]) -> Iterator[LogEvent]:
    for rank, events in [(None, attempt.shared), *((track.rank, track.events) for track in attempt.tracks)]:
        for event in events:
            values = dict(event.values)
            kind: LogEventKind | None = KIND_OF.get(event.id) or ENDS.get(event.id)
            if event.id.startswith("exception:"):
                kind = "traceback"
                values["exception"] = event.id.partition(":")[2]
                values |= {"follows": "yes"} if event.kind == "consequence" else {}
            if kind is None:
                continue
            origin = event.where.rpartition(":")[0]
            yield LogEvent(
                kind=kind,
                text=event.text[:SHOWN_CHARACTERS],
                where=event.where,
                rank=rank,
                at=_epoch(event.time_s, modified.get(origin)),
                values=values,
            )


def _unique_ends(events: Iterable[LogEvent]) -> list[LogEvent]:
    """Return one event for each end of a process: launchers report it several times, best with its pid."""
    kept: dict[object, LogEvent] = {}
    for event in events:
        key = (event.kind, event.rank, event.values.get("code")) if event.kind == "exit" else (event.kind, len(kept))
        if key not in kept or ("pid" in event.values and "pid" not in kept[key].values):
            kept[key] = event
    return list(kept.values())


def _ranks(found: ScanResult, attempt: Attempt, resolver: RankResolver, modified: dict[str, float]) -> list[RankLog]:
    logged: dict[int, RankLog] = {}
    for text in found.texts:
        of_attempt = {key: ends for key, ends in text.writer_lines.items() if key[0] == attempt.number}
        ranks = {key: resolver.resolve(key[1]).rank for key in of_attempt}
        own = len(set(ranks.values())) == 1
        for key, (_, last) in of_attempt.items():
            rank = ranks[key]
            if rank is None:
                continue
            silent_since = modified.get(text.origin) if own else None
            if not own and key in text.stamped:
                silent_since = _epoch(last.time_s, modified.get(text.origin))
            row = _rank_log(rank, resolver.host(key[1]), last, silent_since, text.last_steps.get(key))
            logged[rank] = _later(logged[rank], row) if rank in logged else row
    return [logged[rank] for rank in sorted(logged)]


def _rank_log(
    rank: int, host: str, last: TimelineEvent, silent_since: float | None, step: TimelineEvent | None
) -> RankLog:
    values = step.values if step else {}
    return RankLog(
        rank=rank,
        host=host,
        last=last.text[:SHOWN_CHARACTERS],
        last_where=last.where,
        silent_since=silent_since,
        step=int(values["step"]) if "step" in values else None,
        epoch=int(values["epoch"]) if "epoch" in values else None,
        step_where=step.where if step else "",
    )


def _later(one: RankLog, other: RankLog) -> RankLog:
    """Merge two texts of one rank (stdout and stderr): the last line of both, the steps of either."""
    first, last = sorted((one, other), key=lambda row: row.silent_since or 0.0)
    if last.step_where or not first.step_where:
        return last
    return msgspec.structs.replace(last, step=first.step, epoch=first.epoch, step_where=first.step_where)


def _modified(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return time.time()


def _epoch(time_s: float | None, modified: float | None) -> float | None:
    """Convert seconds since January 1 to seconds since the epoch, or None if the result is after the last write.

    The year is that of the last write to the file, or the one before; the time zone is that of this machine.
    """
    if time_s is None or modified is None:
        return None
    day = int(time_s // DAY_S)
    month = max(index for index, before in enumerate(DAYS_BEFORE) if before <= day)
    year = datetime.fromtimestamp(modified).year
    for candidate in (year, year - 1):
        try:
            midnight = datetime(candidate, month + 1, day - DAYS_BEFORE[month] + 1).timestamp()
        except ValueError:
            continue  # February 29
        if midnight + time_s % DAY_S <= modified + 1.0:
            return midnight + time_s % DAY_S
    return None


def _undecided(log: JobLog) -> Verdict:
    ended = bool(log.of("exit", "root-cause"))
    tracebacks = log.of("traceback")
    why = "The log shows no difference between the ranks."
    if tracebacks:
        why = f"{tracebacks[0].text.partition('   at ')[0]} ({tracebacks[0].where})."
    return Verdict(
        state="dead" if ended else "unknown",
        cause=None,
        culprits=[],
        collective=None,
        where=None,
        branch=None,
        why=why if tracebacks or ended else "The log alone does not show whether the job makes progress.",
        confidence=0.3,
        findings=["job.rank-dead"] if ended else [],
    )


def _row(rank: int, log: JobLog, host: str) -> RankRow:
    """Return the row of a rank; ``log`` holds the events of this rank only."""
    logged = next((row for row in log.ranks if row.rank == rank), None)
    traceback = next(iter(log.of("traceback")), None)
    ended = bool(log.of("traceback", "exit", "root-cause"))
    since = logged.silent_since if logged else None
    function = traceback.values.get("location", "").partition(" in ")[2] if traceback else ""
    work = next(iter(log.of("watchdog")), None)
    return RankRow(
        rank=rank,
        host=(logged.host if logged else "") or host,
        state="dead" if ended else "unreadable" if logged else "missing",
        where=user_line(log, rank),
        function=function or None,
        collective=collective_of_rank(log, rank),
        group=work.values.get("group") or work.values.get("pg") if work else None,
        seq=int(work.values["seq"]) if work and "seq" in work.values else None,
        since_s=round(log.read_at - since, 1) if since is not None else None,
        since_from="log",
        note=_note(logged, traceback),
    )


def _note(logged: RankLog | None, traceback: LogEvent | None) -> str:
    """Return a short note, the same for ranks in the same state: how a rank ended, or its last step."""
    if traceback:
        return traceback.values["exception"]
    if logged is None:
        return "not in the log"
    parts = [
        f"{name} {number}" for name, number in (("epoch", logged.epoch), ("step", logged.step)) if number is not None
    ]
    return ", ".join(parts)
