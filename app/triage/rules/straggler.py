"""Find the straggler: the one rank that is slower than the others, which wait for it."""

from collections.abc import Sequence

from ..rank_activity.collectives_in_stack import GRADIENTS, collective_of
from ..rank_activity.rank_state import RankState
from ..types import Sample, Verdict
from .context import JobContext, make_verdict
from .divergence import deciding_condition

OTHERS_WAIT = 0.75  # share of the other ranks' samples that must be in a collective if one rank slows them down
BUSIER = 2.0  # times as much CPU time as any other rank
SUFFICIENT_SAMPLES = 3  # without a further sign
SINCE_SLACK_S = 0.2  # ``since_s`` is rounded


def find_straggler(context: JobContext) -> RankState | None:
    """Return the one rank that is outside collectives in every sample while the others are mostly in one, or None."""
    sampled = [state for state in context.alive if state.observed]
    outside = [state for state in sampled if not any(map(_is_in_collective, samples_with_stack(state)))]
    if len(sampled) < 2 or len(outside) != 1:
        return None
    slow = outside[0]
    others = [sample for state in sampled if state is not slow for sample in samples_with_stack(state)]
    if not others or sum(map(_is_in_collective, others)) / len(others) < OTHERS_WAIT:
        return None
    enough = len(samples_with_stack(slow)) >= SUFFICIENT_SAMPLES
    slow_kinds = ("sleep", "dormant", "loader", "files", "service", "lock")
    sleeps = slow.wait_reason is not None and slow.wait_reason.kind in slow_kinds
    busier = _cpu_s(slow) > BUSIER * max((_cpu_s(state) for state in sampled if state is not slow), default=0.0)
    return slow if enough or sleeps or busier else None


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


def _is_in_collective(sample: Sample) -> bool:
    """Return whether a sample shows a rank in a collective; a backward pass may compute as well as wait."""
    name, via = collective_of(sample.stack)
    return name is not None and (via != GRADIENTS or sample.process_state == "S")
