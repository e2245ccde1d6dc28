"""The logs of a job join in: read them into facts, each with its rank and line, and make a report of them alone."""

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
from ..types import JobLog, JobReport, LogEvent, LogEventKind, Observation, ProcessDeath, RankLog, RankRow, Verdict
from .judge import verdict_from_log
from .patterns import KIND_OF, NEEDLES
from .per_rank import collective_of_rank, death_event, user_line

__all__ = ["JobLog", "deaths_in_log", "read_job_logs", "report_from_logs", "verdict_from_log"]

ENDS: dict[str, LogEventKind] = {"mark:exit": "exit", "mark:summary": "root-cause"}
DAY_S = 86400.0
SHOWN_CHARACTERS = 200
MOST_FACTS = 20_000
MOST_IN_ONE_TEXT = 48  # ranks and attempts; of what very many say at once, the reader keeps only some


def read_job_logs(files: Sequence[Path], knowledge: Knowledge | None = None) -> JobLog:
    """What the logs say of the job's last attempt. A directory stands for the files in it.

    Raises:
        UserError: A file is missing, unreadable or binary, or everything is empty.
    """
    names = find_sources([str(file) for file in files])
    found = scan_sources(names, [*build_patterns(knowledge or _builtin()), *NEEDLES])
    resolver = RankResolver(found.texts, found.hits)
    written = {name.origin: _written(name.path) for name in names}
    origins = [name.origin for name in names]
    if found.timeline is None or not found.timeline.attempts:
        return JobLog(files=origins, read_at=time.time())
    attempt = found.timeline.attempts[-1]
    alone = mark_first_failure(Timeline([attempt], ordered=found.timeline.ordered))
    facts = _once(_facts(attempt, written))[:MOST_FACTS]
    sizes = [int(fact.values["of"]) for fact in facts if fact.kind == "nccl-init" and "of" in fact.values]
    return JobLog(
        files=origins,
        read_at=time.time(),
        attempts=len(found.timeline.attempts),
        world_size=max(sizes, default=None),
        facts=facts,
        ranks=_ranks(found, attempt, resolver, written),
        first=alone.culprit,
        first_where=alone.culprit_where,
        whole=all(len(text.spoken) <= MOST_IN_ONE_TEXT for text in found.texts),
    )


@cache
def _builtin() -> Knowledge:
    return load_knowledge()


def deaths_in_log(log: JobLog) -> list[ProcessDeath]:
    """The processes that the launcher or the kernel says have ended, without those that only followed another."""
    found: list[ProcessDeath] = []
    for fact in log.of("exit", "killed"):
        if fact.rank is not None and death_event(log, fact.rank) is None:
            continue
        code = int(fact.values.get("code", "1"))
        pid = int(fact.values["pid"]) if "pid" in fact.values else None
        how = "oom_killer" if fact.kind == "killed" else "signal" if code < 0 or code > 128 else "exit"
        what = f"exitcode: {code}" if fact.kind == "exit" else fact.text
        found.append(ProcessDeath(pid=pid, rank=fact.rank, how=how, what=what, where=fact.where, at=fact.at))
    return found


def report_from_logs(files: Sequence[Path]) -> JobReport:
    """The report that the logs of a job allow when nothing of it is looked at.

    Raises:
        UserError: A file is missing, unreadable or binary, or everything is empty.
    """
    log = read_job_logs(files)
    if not log.ranks and not log.facts:
        names = ", ".join(str(file) for file in files)
        raise UserError(f"no rank of a distributed job speaks in {names}", "ddpwizard diagnose reads any text")
    known = [row.rank for row in log.ranks] + [fact.rank for fact in log.facts if fact.rank is not None]
    world_size = log.world_size or max(known, default=0) + 1
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
    for fact in log.facts:
        parts[fact.rank].append(fact)
    rows = [_row(rank, msgspec.structs.replace(log, facts=parts[rank]), job.host) for rank in range(world_size)]
    return JobReport(
        launcher=job.launcher, world_size=world_size, nodes=hosts, ranks=rows, verdict=verdict, observed=observed
    )


def _facts(attempt: Attempt, written: dict[str, float]) -> Iterator[LogEvent]:
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
                at=_epoch(event.time_s, written.get(origin)),
                values=values,
            )


def _once(facts: Iterable[LogEvent]) -> list[LogEvent]:
    """One fact of each end of a process: launchers tell it several times, the one with its pid says most."""
    kept: dict[object, LogEvent] = {}
    for fact in facts:
        key = (fact.kind, fact.rank, fact.values.get("code")) if fact.kind == "exit" else (fact.kind, len(kept))
        if key not in kept or ("pid" in fact.values and "pid" not in kept[key].values):
            kept[key] = fact
    return list(kept.values())


def _ranks(found: ScanResult, attempt: Attempt, resolver: RankResolver, written: dict[str, float]) -> list[RankLog]:
    said: dict[int, RankLog] = {}
    for text in found.texts:
        mine = {key: ends for key, ends in text.spoken.items() if key[0] == attempt.number}
        ranks = {key: resolver.voice(key[1]).rank for key in mine}
        own = len(set(ranks.values())) == 1
        for key, (_, last) in mine.items():
            rank = ranks[key]
            if rank is None:
                continue
            silent_since = written.get(text.origin) if own else None
            if not own and key in text.stamped:
                silent_since = _epoch(last.time_s, written.get(text.origin))
            row = _rank_log(rank, resolver.host(key[1]), last, silent_since, text.last_steps.get(key))
            said[rank] = _later(said[rank], row) if rank in said else row
    return [said[rank] for rank in sorted(said)]


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
    """Two texts of one rank (its stdout and stderr) as one: the last words of both, the steps of either."""
    first, last = sorted((one, other), key=lambda row: row.silent_since or 0.0)
    if last.step_where or not first.step_where:
        return last
    return msgspec.structs.replace(last, step=first.step, epoch=first.epoch, step_where=first.step_where)


def _written(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return time.time()


def _epoch(time_s: float | None, written: float | None) -> float | None:
    """Seconds since January 1, as a log has them, as seconds since the epoch: of the year in which the file was last
    written, in this machine's time zone. None where that lies after the last write."""
    if time_s is None or written is None:
        return None
    day = int(time_s // DAY_S)
    month = max(index for index, before in enumerate(DAYS_BEFORE) if before <= day)
    year = datetime.fromtimestamp(written).year
    for candidate in (year, year - 1):
        try:
            midnight = datetime(candidate, month + 1, day - DAYS_BEFORE[month] + 1).timestamp()
        except ValueError:
            continue  # February 29
        if midnight + time_s % DAY_S <= written + 1.0:
            return midnight + time_s % DAY_S
    return None


def _undecided(log: JobLog) -> Verdict:
    ended = bool(log.of("exit", "root-cause"))
    tracebacks = log.of("traceback")
    why = "The log does not tell one rank from the others."
    if tracebacks:
        why = f"{tracebacks[0].text.partition('   at ')[0]} ({tracebacks[0].where})."
    return Verdict(
        state="dead" if ended else "unknown",
        cause=None,
        culprits=[],
        collective=None,
        where=None,
        branch=None,
        why=why if tracebacks or ended else "The log alone does not say whether the job moves.",
        confidence=0.3,
        findings=["job.rank-dead"] if ended else [],
    )


def _row(rank: int, log: JobLog, host: str) -> RankRow:
    """The row of a rank; ``log`` holds its facts only."""
    said = next((row for row in log.ranks if row.rank == rank), None)
    traceback = next(iter(log.of("traceback")), None)
    ended = bool(log.of("traceback", "exit", "root-cause"))
    since = said.silent_since if said else None
    function = traceback.values.get("location", "").partition(" in ")[2] if traceback else ""
    work = next(iter(log.of("watchdog")), None)
    return RankRow(
        rank=rank,
        host=(said.host if said else "") or host,
        state="dead" if ended else "unreadable" if said else "missing",
        where=user_line(log, rank),
        function=function or None,
        collective=collective_of_rank(log, rank),
        group=work.values.get("group") or work.values.get("pg") if work else None,
        seq=int(work.values["seq"]) if work and "seq" in work.values else None,
        since_s=round(log.read_at - since, 1) if since is not None else None,
        since_from="log",
        note=_note(said, traceback),
    )


def _note(said: RankLog | None, traceback: LogEvent | None) -> str:
    """A few words that are alike for ranks that are: how a rank has ended, or its last step."""
    if traceback:
        return traceback.values["exception"]
    if said is None:
        return "not heard of in the log"
    parts = [f"{name} {number}" for name, number in (("epoch", said.epoch), ("step", said.step)) if number is not None]
    return ", ".join(parts)
