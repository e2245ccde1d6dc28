"""Find the straggler: the one rank that is slower than the others, which wait for it."""

from collections.abc import Mapping, Sequence

from ..rank_activity.collectives_in_stack import waits_in_collective
from ..rank_activity.rank_state import RankState
from ..types import Sample, Verdict
from .context import JobContext, make_verdict
from .divergence import deciding_condition

OTHERS_WAIT = 0.75  # least share of the other ranks' samples in a collective if one rank slows them down
BUSIER = 2.0  # times as much CPU time as any other rank
SUFFICIENT_SAMPLES = 3  # without a further sign
SAMPLES_FOR_SHARES = 8  # of a straggler that some samples show in a collective
MOSTLY_IN_COLLECTIVES = 0.5  # share of all samples
SINCE_SLACK_S = 0.2  # ``since_s`` is rounded


def find_straggler(context: JobContext) -> RankState | None:
    """Return the one rank that is outside collectives in every sample while the others are mostly in one, or None.

    Of ``SAMPLES_FOR_SHARES`` samples or more, some may show it in a collective, which it enters last and leaves soon.
    """
    slow = _least_in_collectives(context)
    if slow is None:
        return None
    samples = samples_with_stack(slow)
    if any(map(waits_in_collective, samples)):
        return slow if len(samples) >= SAMPLES_FOR_SHARES else None
    enough = len(samples) >= SUFFICIENT_SAMPLES
    slow_kinds = ("sleep", "dormant", "loader", "files", "service", "lock")
    sleeps = slow.wait_reason is not None and slow.wait_reason.kind in slow_kinds
    others = (state for state in context.alive if state.observed and state is not slow)
    busier = _cpu_s(slow) > BUSIER * max(map(_cpu_s, others), default=0.0)
    return slow if enough or sleeps or busier else None


def may_have_straggler(context: JobContext) -> bool:
    """Return whether more samples may show a straggler: the ranks are in collectives most of the time."""
    sampled = [samples_with_stack(state) for state in context.alive if state.observed]
    together = [sample for samples in sampled for sample in samples]
    few = any(len(samples) < SAMPLES_FOR_SHARES for samples in sampled)
    return few and len(sampled) > 1 and _share_in_collectives(together) >= MOSTLY_IN_COLLECTIVES


def _least_in_collectives(context: JobContext) -> RankState | None:
    """Return the one rank that is mostly outside collectives while the others are mostly in one."""
    states = {state.rank: state for state in context.alive if state.observed}
    rank = pace_setter({rank: _share_in_collectives(samples_with_stack(state)) for rank, state in states.items()})
    return states[rank] if rank is not None else None


def pace_setter(shares: Mapping[int, float]) -> int | None:
    """Return the one rank that is mostly outside collectives while the others are mostly in one, or None.

    ``shares``: of the samples of each rank, those in a collective.
    """
    below = [rank for rank, share in shares.items() if share <= 1 - OTHERS_WAIT]
    if len(below) != 1 or len(shares) < 2:
        return None
    others = [share for rank, share in shares.items() if rank != below[0]]
    return below[0] if sum(others) / len(others) >= OTHERS_WAIT else None


def _share_in_collectives(samples: Sequence[Sample]) -> float:
    return sum(map(waits_in_collective, samples)) / len(samples) if samples else 0.0


def slow_rank_verdict(
    context: JobContext, slow: RankState, text: str, confidence: float, with_rank_test: float
) -> Verdict:
    """Build the verdict if all wait for one rank: in each step, or once for work that only it does.

    ``with_rank_test``: the confidence if a rank test in the script confirms it.
    """
    branch = deciding_condition(context.waiting, [slow], context.world_size, context.sources)
    sure = bool(branch and branch.sure)
    once = not any(context.sources[frame.path].loops(frame.line) for frame in slow.frames)
    if slow.rank == 0 or (sure and once):
        finding, cause = "job.rank0-alone-at-work", "rank0-slow-work"
    else:
        finding, cause = "job.straggler", "straggler-rank"
    return make_verdict(
        "progressing",
        text,
        with_rank_test if sure else confidence,
        [finding],
        cause=cause,
        culprits=[slow],
        branch=branch if sure else None,
        waiting=context.waiting,
    )


def waited_throughout(state: RankState) -> bool:
    """Return whether a rank made no progress over all its samples."""
    samples = samples_with_stack(state)
    return (state.row.since_s or 0.0) + SINCE_SLACK_S >= samples[-1].at - samples[0].at


def samples_with_stack(state: RankState) -> Sequence[Sample]:
    return [sample for sample in state.observed.samples if sample.stack] if state.observed else []


def _cpu_s(state: RankState) -> float:
    samples = samples_with_stack(state)
    return samples[-1].cpu_s - samples[0].cpu_s if len(samples) > 1 else 0.0
