"""Rules for a job that makes progress: as a whole, at the pace of one rank, or with one rank at work and all others
waiting."""

import msgspec

from .. import phrases
from ..rank_activity.gil import gil_holder
from ..rank_activity.rank_state import RankState
from ..slow_place import count_places, slow_place
from ..types import Verdict
from .context import INIT, JobContext, make_verdict, rank_numbers, waiting_sentence
from .straggler import (
    SUFFICIENT_SAMPLES,
    find_straggler,
    may_have_straggler,
    samples_with_stack,
    slow_rank_verdict,
    waited_throughout,
)

MAY_SLEEP_ON = 0.5
JOINING_S = 30.0  # a rank that has not joined after this time is late


def ranks_progressing(context: JobContext) -> Verdict | None:
    """Some ranks make progress."""
    if not context.progressing:
        return None
    if context.waiting and not context.idle:
        return _some_wait(context)
    if slow := find_straggler(context):
        return _straggler_verdict(context, slow)
    text = "The ranks make progress." if len(context.alive) > 1 else "The process makes progress."
    if context.absent:
        text += f" {phrases.ranks_phrase(rank_numbers(context.absent), 'have')} ended or not started."
    return make_verdict("progressing", text, 0.6 if may_have_straggler(context) else 0.9, ["job.progressing"])


def _straggler_verdict(context: JobContext, slow: RankState) -> Verdict:
    rest = [state for state in context.alive if state.rank != slow.rank]
    samples = samples_with_stack(slow)
    places = count_places(samples)
    where = slow_place(places, (count_places(samples_with_stack(state)) for state in rest)) or slow.row.where
    at_work = "in every sample" if not places[None] else f"in {len(samples) - places[None]} of {len(samples)} samples"
    text = (
        f"The job runs at the pace of rank {slow.rank}: {at_work} it was at work, most often at "
        f"{phrases.short_place(where)}, while {phrases.mid_sentence(phrases.ranks_phrase(rank_numbers(rest), 'wait'))} "
        "for it."
    )
    confidence = 0.75 if len(samples) >= SUFFICIENT_SAMPLES else 0.6
    found = make_verdict("progressing", text, confidence, ["job.straggler"], cause="straggler-rank", culprits=[slow])
    return msgspec.structs.replace(found, where=where)


def _some_wait(context: JobContext) -> Verdict:
    """Some ranks make no progress between the samples and wait for those that are at work."""
    busy = context.progressing
    if len(busy) == 1 and busy[0].wait_reason and busy[0].wait_reason.kind == "gil":
        return _keeps_gil(context, busy[0])
    text = (
        f"{phrases.ranks_phrase(rank_numbers(busy), 'are')} at work (last seen at "
        f"{phrases.short_place(busy[0].row.where)}), while "
        f"{phrases.mid_sentence(waiting_sentence(context.waiting))}."
    )
    if len(busy) > 1 or busy[0].collective or len(context.waiting) + 1 < context.world_size:
        return make_verdict("progressing", text, 0.7, ["job.progressing"])
    if all(state.collective == INIT for state in context.waiting) and context.age_s < JOINING_S:
        return make_verdict("starting", text, 0.7)
    samples = samples_with_stack(busy[0])
    if len(samples) >= SUFFICIENT_SAMPLES and not all(map(waited_throughout, context.waiting)):
        if slow := find_straggler(context):
            return _straggler_verdict(context, slow)
        return make_verdict("progressing", text, 0.7, ["job.progressing"])
    if gil_holder(samples):
        at = phrases.short_place(busy[0].row.where)
        text += f" It held Python's interpreter lock (GIL) at {at} in every sample: a long C call, or a loop there."
    confidence = 0.75 if len(samples) >= SUFFICIENT_SAMPLES else 0.6
    return slow_rank_verdict(context, busy[0], text, confidence, with_rank_test=0.85)


def culprits_sleeping(context: JobContext) -> Verdict | None:
    """The ranks that others wait for are in a sleep of the script, which will end."""
    idle = context.idle
    if not idle or not context.waiting or context.progressing:
        return None
    if not all(state.wait_reason and state.wait_reason.kind == "sleep" for state in idle):
        return None
    who = phrases.ranks_phrase(rank_numbers(idle), "are")
    text = (
        f"{who} in a sleep at {phrases.short_place(idle[0].row.where)}, while "
        f"{phrases.mid_sentence(waiting_sentence(context.waiting))}. The job continues when the sleep ends. Run triage "
        "again in a minute: a rank that still sleeps there may never wake."
    )
    if len(idle) > 1:
        return make_verdict("progressing", text, MAY_SLEEP_ON, ["job.progressing"])
    return slow_rank_verdict(context, idle[0], text, MAY_SLEEP_ON, with_rank_test=MAY_SLEEP_ON)


def _keeps_gil(context: JobContext, busy: RankState) -> Verdict:
    """One rank is in a C call that may be long or may never return: its other threads cannot know either."""
    text = (
        f"Rank {busy.rank} was at {phrases.short_place(busy.row.where)} in every sample, in one C call. It holds "
        "Python's interpreter lock (GIL), so that its other threads cannot run. "
        f"{waiting_sentence(context.waiting)}. A long call ends, an endless loop in C does not: run triage again in a "
        "minute."
    )
    findings = ["job.rank-keeps-gil"]
    return make_verdict("unknown", text, 0.6, findings, cause="python-lock", culprits=[busy], waiting=context.waiting)
