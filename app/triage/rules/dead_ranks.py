"""Rules for ranks that are dead, stopped, unreadable or exiting."""

from collections.abc import Sequence

from .. import phrases
from ..rank_activity.rank_state import RankState
from ..rank_activity.wait_reasons import WHILE_EXITING
from ..types import ProcessDeath, Verdict
from .context import INIT, JobContext, at_one_place, hang_verdict, make_verdict, rank_numbers, waiting_sentence
from .divergence import Branch, deciding_condition, early_exits, left_by_error

DEATH_KNOWN = 0.95
ONLY_ABSENT = 0.75  # the rank may have ended regularly
FINISHED_EARLY = 0.7
LEFT_LOOP = 0.7


def all_dead(context: JobContext) -> Verdict | None:
    """No rank is alive."""
    if context.alive or context.unreadable or not context.observed.seen:
        return None
    deaths = sorted(context.observed.deaths, key=_time_of_death)
    text = "No rank of this job is alive."
    if not deaths:  # it may have ended as it should
        return make_verdict("dead", f"{text} Its output shows whether it ended with an error.", 0.95)
    text += f" The first known death: {_death_text(deaths[0])}."
    return make_verdict("dead", text, 0.95, ["job.rank-dead", *_findings(deaths)])


def ranks_stopped(context: JobContext) -> Verdict | None:
    """Ranks are stopped by a signal or a debugger."""
    stopped = [state for state in context.alive if state.row.state == "stopped"]
    if not stopped:
        return None
    who, where = phrases.ranks_phrase(rank_numbers(stopped), "are stopped"), phrases.short_place(stopped[0].row.where)
    text = f"{who} by a signal or a debugger at {where}."
    if context.waiting:
        text += f" {waiting_sentence(context.waiting)}."
    return hang_verdict("rank-paused", stopped, text, 0.95, ["job.rank-stopped"], waiting=context.waiting)


def stacks_unreadable(context: JobContext) -> Verdict | None:
    """No stack could be read."""
    if context.alive or not context.unreadable:
        return None
    why = context.unreadable[0].row.note.removeprefix("stack: ")
    return make_verdict("unknown", f"No rank's stack could be read: {why}.", 0.1)


def stuck_in_shutdown(context: JobContext) -> Verdict | None:
    """Ranks do not get out of Python, or of their process group, after the others have finished."""
    if not context.exiting or context.progressing:
        return None
    others = [state for state in context.rank_states if state not in context.exiting]
    if context.waiting:
        return _exited_before_others(context)
    text = f"{phrases.ranks_phrase(rank_numbers(context.exiting), 'do')} not exit: {_exit_text(context.exiting)}."
    if others and all(state in context.absent for state in others):
        text += f" {phrases.ranks_phrase(rank_numbers(others), 'have')} ended."
    confidence = 0.85 if context.absent and not context.idle else 0.6
    return hang_verdict("exit-hang", context.exiting, text, confidence, ["job.rank-leaving"])


def _exited_before_others(context: JobContext) -> Verdict:
    """Some ranks are exiting while others still wait for them in a collective."""
    exiting, waiting = context.exiting, context.waiting
    branch = deciding_condition(waiting, exiting, context.world_size, context.sources)
    who = phrases.ranks_phrase(rank_numbers(exiting), "are")
    text = f"{who} exiting: {_exit_text(exiting)}. {waiting_sentence(waiting)}."
    if branch and branch.sure and branch.how != "raise":
        waits_alone = branch.taken_by == rank_numbers(waiting) and len(waiting) < len(exiting)
        culprits = waiting if waits_alone else exiting
        findings = ["job.culprit-line-under-rank-test"]
        return hang_verdict("rank-conditional-collective", culprits, text, 0.9, findings, branch, waiting)
    if (branch and branch.how == "raise") or _printed_traceback(exiting):
        error = _known_error(context, exiting)
        text = f"{who} exiting after an error{error}, but {_exit_text(exiting)}. {waiting_sentence(waiting)}."
        return hang_verdict("rank-died-survivors-wait", exiting, text, 0.85, ["job.rank-dead"], branch, waiting)
    if left_by_error(waiting[0], context.sources):
        text = f"{who} exiting: an error, to be found in its output, ended a loop that is as long on every rank. "
        text += f"{waiting_sentence(waiting)}."
        return hang_verdict("rank-died-survivors-wait", exiting, text, LEFT_LOOP, ["job.rank-dead"], branch, waiting)
    in_loop = any(context.sources[frame.path].loops(frame.line) for frame in waiting[0].frames)
    if in_loop and len(exiting) != len(waiting):
        fewer = min(exiting, waiting, key=len)
        return hang_verdict("uneven-inputs", fewer, text, 0.6, ["job.loop-ended-early"], waiting=waiting)
    return hang_verdict("exit-hang", exiting, text, 0.55, ["job.rank-leaving"], waiting=waiting)


def _known_error(context: JobContext, states: Sequence[RankState]) -> str:
    """Return the exception in the log of the first of these ranks that shows one, in brackets, or ""."""
    log = context.observed.log
    events = log.of("traceback") if log else []
    found = next((event for state in states for event in events if event.rank == state.rank), None)
    return f" ({found.text.partition('   at ')[0].strip()})" if found else ""


def _printed_traceback(states: Sequence[RankState]) -> bool:
    """Return whether the last output of these ranks contains a traceback."""
    return any(
        "Traceback (most recent call last)" in line
        for state in states
        if state.observed
        for line in state.observed.output
    )


def _exit_text(exiting: Sequence[RankState]) -> str:
    """Return ``it waits for its other threads to end, at train.py:15``, of several ranks what the first one does."""
    state = exiting[0]
    what = state.wait_reason.what if state.wait_reason else f"in {phrases.operation_text(state)}"
    what = what.removesuffix(WHILE_EXITING)
    text = f"it waits {what}" if len(exiting) == 1 else f"they wait {what.replace('its other', 'their other')}"
    return f"{text}, at {phrases.short_place(state.row.where)}" if state.row.where else text


def some_dead(context: JobContext) -> Verdict | None:
    """Some ranks have ended while others wait for them."""
    waiting = context.waiting or context.idle
    if not context.absent or not waiting or context.progressing or all(each.collective == INIT for each in waiting):
        return None
    deaths = _deaths(context)
    if not context.waiting and not deaths:
        return None
    text = f"{phrases.ranks_phrase(rank_numbers(context.absent), 'have')} ended"
    text += f" ({_death_text(deaths[0])}). " if deaths else ". "
    if context.waiting:
        text += f"{waiting_sentence(context.waiting)} and will wait for ever."
    else:
        first, together = context.idle[0], at_one_place(context.idle)
        text += (
            f"{phrases.ranks_phrase(rank_numbers(together), 'are')} blocked at {phrases.short_place(first.row.where)}"
        )
        text += f", waiting {first.wait_reason.what}." if first.wait_reason else "."
    branch = None
    if context.waiting and not deaths:
        branch = deciding_condition(context.waiting, context.absent, context.world_size, context.sources)
    if branch and branch.sure:
        if branch.how != "raise":
            findings = ["job.culprit-line-under-rank-test"]
            return hang_verdict(
                "rank-conditional-collective", context.absent, text, 0.8, findings, branch, context.waiting
            )
    else:
        branch = None
    if not deaths and not branch and (verdict := _finished_early(context)):
        return verdict
    findings = ["job.rank-dead", *_findings(deaths)]
    confidence = DEATH_KNOWN if deaths else ONLY_ABSENT
    return hang_verdict("rank-died-survivors-wait", context.absent, text, confidence, findings, branch, context.waiting)


def _finished_early(context: JobContext) -> Verdict | None:
    """Ranks ended without an error, because their data was exhausted before that of the others.

    torchrun ends every rank of its node if one fails (torch 2.13, distributed/elastic/multiprocessing/api.py,
    ``SubprocessContext._poll``): if others are alive, the ranks it has collected ended with exit code 0.
    """
    job = context.job
    collected = all(state.row.pid is None and state.row.state == "missing" for state in context.absent)
    if job.launcher != "torchrun" or job.launcher_pid is None or not collected or not context.waiting:
        return None
    inside = context.waiting[0]
    exits = early_exits(inside, context.sources)
    in_loop = any(context.sources[frame.path].loops(frame.line) for frame in inside.frames)
    if not exits and not in_loop:
        return None
    text = (
        f"{phrases.ranks_phrase(rank_numbers(context.absent), 'have')} ended without an error: torchrun would have "
        f"ended all ranks after one. {waiting_sentence(context.waiting)} and will wait for ever."
    )
    branch = Branch(exits[0], rank_numbers(context.absent), False) if len(exits) == 1 and not in_loop else None
    findings = ["job.loop-ended-early"]
    return hang_verdict("uneven-inputs", context.absent, text, FINISHED_EARLY, findings, branch, context.waiting)


def _deaths(context: JobContext) -> list[ProcessDeath]:
    """Return the known deaths of the absent ranks, the earliest first."""
    absent, pids = set(rank_numbers(context.absent)), {state.row.pid for state in context.absent} - {None}
    known = [death for death in context.observed.deaths if death.rank in absent or death.pid in pids]
    if not known:
        known = [death for death in context.observed.deaths if death.rank is None and death.how == "oom_killer"]
    return sorted(known, key=_time_of_death)


def _time_of_death(death: ProcessDeath) -> tuple[bool, float]:
    """Return a sort key: deaths without a time come last."""
    return death.at is None, death.at or 0.0


def _death_text(death: ProcessDeath) -> str:
    who = f"rank {death.rank}" if death.rank is not None else f"pid {death.pid}"
    return f"{who}: {phrases.DEATH_TEXT[death.how]}, according to {death.where}: {death.what[:160]}"


def _findings(deaths: Sequence[ProcessDeath]) -> list[str]:
    return ["job.killed-for-memory"] if any(death.how == "oom_killer" for death in deaths) else []
