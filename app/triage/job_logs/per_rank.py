"""What the logs say of one rank: how it ended, which line and which collective it was in."""

from .. import phrases
from ..types import JobLog, LogEvent, Observation

ENDED_BY_LAUNCHER = (-15, 143)
NOTICED = ("watchdog", "peer-closed", "gloo-timeout", "mismatch", "store-timeout", "nccl-error", "absent", "size")
# c10d's names of operations (OpType) as torch.distributed's functions are called.
OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "BROADCAST": "broadcast",
    "REDUCE": "reduce",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "all_gather_into_tensor",
    "ALLGATHER_COALESCED": "all_gather_coalesced",
    "GATHER": "gather",
    "SCATTER": "scatter",
    "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "reduce_scatter_tensor",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all_single",
    "SEND": "send",
    "RECV": "recv",
    "BARRIER": "barrier",
}


def ended_by_own_failure(fact: LogEvent) -> bool:
    """Whether a process that a fact tells of has failed or was killed, and not by its launcher."""
    return int(fact.values.get("code", "1")) not in (*ENDED_BY_LAUNCHER, 0)


def death_event(log: JobLog, rank: int) -> LogEvent | None:
    """What says that a rank has ended by a failure of its own: its traceback, or its exit code."""
    own = [fact for fact in log.of("traceback") if fact.rank == rank and "follows" not in fact.values]
    ended = [fact for fact in log.of("exit", "root-cause") if fact.rank == rank and ended_by_own_failure(fact)]
    noticed = any(fact.rank == rank for fact in log.of(*NOTICED))
    return next(iter(own or ([] if noticed else ended)), None)


def user_line(log: JobLog, rank: int) -> str | None:
    """``path:line`` of the user's innermost frame in a rank's traceback."""
    places = [fact.values["location"] for fact in log.of("traceback") if fact.rank == rank and fact.values["location"]]
    return places[0].partition(" in ")[0] if places else None


def collective_of_rank(log: JobLog, rank: int) -> str | None:
    """The collective that a rank was in, by torch.distributed's name."""
    for fact in log.of("traceback", "mismatch", "watchdog"):
        if fact.rank == rank and (name := fact.values.get("collective")):
            return name
        if fact.rank == rank and (operation := fact.values.get("op")):
            return OPERATIONS.get(operation, operation.strip("_").lower())
    return None


def death_text(log: JobLog, rank: int) -> str:
    """How a rank has ended, as a sentence."""
    fact = death_event(log, rank)
    if fact is None:
        return f"Rank {rank} has failed."
    if fact.kind == "traceback":
        return f"Rank {rank} failed: {fact.text.partition('   at ')[0].strip()}{_at(user_line(log, rank))}."
    code = int(fact.values.get("code", "1"))
    return f"Rank {rank} {'was ended by signal ' + str(-code) if code < 0 else f'ended with exit code {code}'}."


def is_alive(observed: Observation, rank: int) -> bool:
    """Whether a process of this rank was seen to live, whatever its log says."""
    return any(
        seen.process.rank == rank and seen.samples and seen.samples[-1].process_state not in ("", "Z")
        for seen in observed.seen
    )


def known_world_size(log: JobLog, observed: Observation) -> int:
    """How many ranks there are, as far as the log or the look at the job knows."""
    known = [row.rank for row in log.ranks] + [fact.rank for fact in log.facts if fact.rank is not None]
    return max(log.world_size or 0, observed.job.world_size, max(known, default=0) + 1)


def call_text(operation: str, shape: str, dtype: str) -> str:
    """``all_reduce ([4], float)``."""
    name = OPERATIONS.get(operation, operation.strip("_").lower())
    details = ", ".join(part for part in (shape, dtype.lower()) if part)
    return f"{name} ({details})" if details else name


def _at(where: str | None) -> str:
    return f" at {phrases.short_place(where)}" if where else ""
