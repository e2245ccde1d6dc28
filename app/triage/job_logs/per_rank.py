"""Facts about one rank in the logs: how it ended, its line in the user's code, and its collective."""

from ...logs.timeline import ENDED_BY_LAUNCHER
from ...text.numbers import MOST_RANKS
from .. import phrases
from ..types import JobLog, LogEvent, Observation

NOTICED = ("watchdog", "peer-closed", "gloo-timeout", "mismatch", "store-timeout", "nccl-error", "absent", "size")
# c10d's names of operations (OpType) -> names of torch.distributed's functions.
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


def ended_by_own_failure(event: LogEvent) -> bool:
    """Return whether the process of an exit event failed or was killed, and not by its launcher."""
    return int(event.values.get("code", "1")) not in (*ENDED_BY_LAUNCHER, 0)


def death_event(log: JobLog, rank: int) -> LogEvent | None:
    """Return the event with which a rank ended by a failure of its own: its traceback or its exit code."""
    own = [event for event in log.of("traceback") if event.rank == rank and "follows" not in event.values]
    ended = [event for event in log.of("exit", "root-cause") if event.rank == rank and ended_by_own_failure(event)]
    noticed = any(event.rank == rank for event in log.of(*NOTICED))
    return next(iter(own or ([] if noticed else ended)), None)


def user_line(log: JobLog, rank: int) -> str | None:
    """Return ``path:line`` of the user's innermost frame in a rank's traceback, or None."""
    places = [
        event.values["location"] for event in log.of("traceback") if event.rank == rank and event.values["location"]
    ]
    return places[0].partition(" in ")[0] if places else None


def collective_of_rank(log: JobLog, rank: int) -> str | None:
    """Return the collective that a rank was in, by its torch.distributed name, or None."""
    for event in log.of("traceback", "mismatch", "watchdog"):
        if event.rank == rank and (name := event.values.get("collective")):
            return name
        if event.rank == rank and (operation := event.values.get("op")):
            return OPERATIONS.get(operation, operation.strip("_").lower())
    return None


def death_text(log: JobLog, rank: int) -> str:
    """Return a sentence on how a rank ended."""
    event = death_event(log, rank)
    if event is None:
        return f"Rank {rank} has failed."
    if event.kind == "traceback":
        return f"Rank {rank} failed: {event.text.partition('   at ')[0].strip()}{_at(user_line(log, rank))}."
    code = int(event.values.get("code", "1"))
    return f"Rank {rank} {'was killed by signal ' + str(-code) if code < 0 else f'ended with exit code {code}'}."


def is_alive(observed: Observation, rank: int) -> bool:
    """Return whether a process of this rank was observed alive, whatever its log contains."""
    return any(
        seen.process.rank == rank and seen.samples and seen.samples[-1].process_state not in ("", "Z")
        for seen in observed.seen
    )


def known_world_size(log: JobLog, observed: Observation) -> int:
    """Return the number of ranks known from the log or the observation of the job."""
    known = [row.rank for row in log.ranks] + [event.rank for event in log.facts if event.rank is not None]
    return min(max(log.world_size or 0, observed.job.world_size, max(known, default=0) + 1), MOST_RANKS)


def call_text(operation: str, shape: str, dtype: str) -> str:
    """Return a call such as ``all_reduce ([4], float)``."""
    name = OPERATIONS.get(operation, operation.strip("_").lower())
    details = ", ".join(part for part in (shape, dtype.lower()) if part)
    return f"{name} ({details})" if details else name


def _at(where: str | None) -> str:
    return f" at {phrases.short_place(where)}" if where else ""
